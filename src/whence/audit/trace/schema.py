"""The trace schema: one row per step of one member (docs/trace.md).

Only optional columns are ever added, so a reader of any version reads the rows of any other.
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

import msgspec

TRACE_VERSION: Final = 2
"""Rises when a column is added or a kind gets a new meaning."""

KINDS: Final = (
    "join", "publish", "send", "receive", "deliver", "drop", "recover", "ticket", "clock", "snapshot", "cutoff",
    "leave", "crash", "fault", "step",
)  # fmt: skip
"""The kinds of rows."""
LOST: Final = "\0lost"
"""The kind of a row that an audit puts in the place of one that it cannot read. No trace has it."""


class Row(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One step of one member. Columns that a kind does not need are None."""

    run: str
    """Which run: unique among the traces that are read together."""
    cluster: str
    """Which cluster; orders and ids are per cluster."""
    member: str
    """Whose step: `address#boot`, one life of one process."""
    lseq: int
    """The order of this member's steps: 0, 1, 2, ... without gaps. The only order a reader may trust."""
    t_ns: int
    """Time in ns: virtual and global in the simulator, wall clock live. For latencies, not for order."""
    kind: str
    """One of `KINDS`."""
    event: str | None = None
    """The event's id, unique in the cluster. One event per row: a frame of 20 events is 20 rows."""
    origin: str | None = None
    """The member that published the event."""
    ticket: int | None = None
    """The ticket it was published under, or that a `ticket` row is about."""
    clock: str | None = None
    """The protocol's own timestamp, on `publish` rows: with tickets `incarnation:seq` in their order with a space
    between, `-` for none; without tickets see docs/trace.md. The audit never reads it."""
    age: int | None = None
    """Hops or rounds since the event was created, on `receive` rows."""
    bytes: int | None = None
    """The size of the event or message."""
    reason: str | None = None
    """Why or how; docs/trace.md explains it for each kind."""
    peer: str | None = None
    """The other member of the step."""
    order: str | None = None
    """The delivery order this member promises, on `join` rows."""
    token: str | None = None
    """Ties a joiner's `join` to the `snapshot` it starts from."""
    control: int | None = None
    """On `publish` rows: bytes of control information (mostly the clock), the event's share of its frame's."""
    held: int | None = None
    """On `receive` rows: events received and neither delivered nor dropped yet, this one included."""
    version: int = msgspec.field(default_factory=partial(int, TRACE_VERSION))
    """The schema version of this row. A factory, so that it is always written."""


class Column(NamedTuple):
    """A column, as stored in every format."""

    name: str
    type: str
    """`text`, `int32` or `int64`."""
    required: bool


_NUMBERS: Final = {"lseq": "int64", "t_ns": "int64", "bytes": "int64"} | dict.fromkeys(
    ("version", "ticket", "age", "control", "held"), "int32"
)
REQUIRED: Final = ("version", "run", "cluster", "member", "lseq", "t_ns", "kind")
"""The columns that have a value in every row."""
COLUMNS: Final = tuple(
    Column(name, _NUMBERS.get(name, "text"), name in REQUIRED)
    for name in dict.fromkeys((*REQUIRED, *Row.__struct_fields__))
)
"""The columns of a Parquet trace, in this order."""

PARQUET: Final = b"PAR1"
"""The first and the last bytes of a Parquet file: what begins otherwise is JSON lines."""
