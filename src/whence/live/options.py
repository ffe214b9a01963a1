"""The options of `whence.create` and `whence.join`, by what they are about. All are given by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from whence.core.config import Settings
from whence.core.order import Contract
from whence.core.order.config import OrderName
from whence.core.ports import Contracted
from whence.live.events import Event
from whence.live.net.host import Host
from whence.live.net.keys import Keys
from whence.live.net.memory import MemoryNetwork
from whence.live.net.transport import Faults

if TYPE_CHECKING:
    from whence.audit.trace import TraceWriter


class Security(TypedDict, total=False):
    """Who may take part: one of the first three, except over a `MemoryNetwork`."""

    secret: bytes | str | None
    """Shared by all members."""
    tls: Keys | str | os.PathLike[str] | None
    """The directory that `whence keys issue` made for this member. Its roles count, too."""
    insecure: bool
    """No protection: for experiments on loopback."""
    roles: Keys | str | os.PathLike[str] | None
    """Such a directory for its roles alone, beside a secret."""


class Port(TypedDict, total=False):
    """Where this process listens. `listen` is an argument of its own."""

    advertise: str | None
    """The address under which others reach it, if that is another one (NAT, containers, listening on 0.0.0.0)."""
    transport: str | MemoryNetwork
    """`tcp`, `udp`, or a network in memory, for tests."""
    faults: Faults | None
    """Fault injection for tests: lost messages and cut links."""
    host: Host | None
    """A port shared with other clusters of this process. Options of the port are then given to the `Host`."""


class Storage(TypedDict, total=False):
    """What is kept, and where."""

    directory: str | os.PathLike[str] | None
    """Where the journal is kept, from which a restarted member continues. Each member needs its own."""
    memory: str | os.PathLike[str] | None
    """The directory of the voter state (a few KB) where there is no `directory` (docs/ring.md, rule C3). By default the
    user's state directory, if `listen` names a port: others look for a voter at its address. None: it is not kept, and
    a restarted process is a new voter."""
    state: Callable[[], bytes] | None
    """Gives the application's state, for a joiner and for the disk. Called between two events, never within one."""
    restore: Callable[[bytes], None] | None
    """Takes such a state: empty bytes if the member that gave it has no `state`. Give both at all members."""
    trace: str | os.PathLike[str] | TraceWriter | None
    """What happened, for the audit: a directory or a `.jsonl` file (JSON lines), a `.parquet` name (`RotatingTrace`),
    or a trace writer."""


class Protocol(TypedDict, total=False):
    """How the cluster works."""

    order: OrderName
    """This member's own choice: `unordered`, `fifo`, `causal` (the default), `reliable`; or `probabilistic`: a cluster
    without tickets, where every member may publish at any time."""
    tickets: int
    """How many members may publish at a time; the same at all members. 8 unless said otherwise."""
    settings: Settings | Mapping[str, Any] | None
    """The same at all members."""
    profile: str
    """Other defaults for `settings`: `ccc11`, the paper's system (docs/protocols.md). The same at all members."""
    contract: Contract | None
    """Makes a cluster without tickets: what its (N, R, K) clock promises (docs/probabilistic.md). Order
    `probabilistic`, `fifo` or `unordered`."""
    votes: bool
    """False: this member is not asked to vote on who may publish (docs/ring.md, rule C10). For a process that comes and
    goes, as on a laptop. The creator votes until others do. True unless said otherwise."""
    on_alert: Callable[[Event], None] | None
    """Called before an event is delivered that is probably a cause of one delivered earlier."""
    on_contract: Callable[[Contracted], None] | None
    """Called when the contract is broken, or kept again."""


class Options(Security, Port, Storage, Protocol, total=False):
    """All of them."""

    timeout: float
    """Seconds that joining may take. 10 unless said otherwise."""
