"""What an event says of itself beyond its payload: how far it goes, where it comes from, who had it published.

The scope is the publisher's choice (SURVEY 3.4). A **local** event is the payload as it is; applications that know
nothing of bridges publish and read those. All others begin with a **heading**,

    SOH "whence:" JSON STX payload

and a plain member sees exactly these bytes. The wire, the clocks and the audit know nothing of it. A local payload that
happens to begin like a heading is escaped (`local`). A heading says something only if a bridge or a door wrote it:
where publishers are not trusted, name those to the `Reader` and the `Bridge` (`trusted`).
"""

from __future__ import annotations

from collections.abc import Collection, Container
from typing import Annotated, Final

import msgspec

from whence.audit.trace.merge import owner_of
from whence.core.clock import EventId, FreeId, address_of
from whence.core.order.overlap import MAX_GROUPS
from whence.errors import BadMessage, UsageError

MARK: Final = b"\x01whence:"
"""How a heading begins: start of heading, and whose."""
END: Final = b"\x02"
"""Start of text. JSON escapes it, so the first one ends the heading."""
MAX_HEADING: Final = 4096
"""Bytes of a heading, mark and end included: what an event may grow by on its way."""
MAX_PATH: Final = 16
"""Clusters on a way."""
MAX_NAME: Final = 255
MAX_CLIENTS: Final = 65_536
"""Clients, and likewise tenures, remembered by a reader; the one that was silent longest is forgotten, and what it may
still have under way could be read twice."""
WINDOW: Final = 64
"""Events of a tenure that two servers brought: so many below the highest are told from its copies, whatever the
reader's order; what is older counts as a copy."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=2 * MAX_NAME)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Path = Annotated[tuple[Name, ...], msgspec.Meta(max_length=MAX_PATH)]
Hop = tuple[Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)], Count, Count, Name]
"""An id as it travels: ticket, incarnation, seq, owner. Without tickets the first is -1, the second 0."""


class Everywhere(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Born here, for all clusters."""


class Crossed(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    """Brought here by a bridge."""

    event: Name
    """Its id where it was born."""
    path: Annotated[Path, msgspec.Meta(min_length=1)]
    """The clusters it has been in, from where it was born to where the bridge took it."""
    hop: Hop
    """Its id in the last of these: what the bridge counts by."""
    client: Annotated[str, msgspec.Meta(max_length=2 * MAX_NAME)] = ""
    number: Count = 0
    shared: bool = False
    """A bridge of several servers brought it: there may be copies."""


class Probe(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """A bridge asks whether there is a way between its clusters already: this goes all ways, like an event."""

    bridge: Name
    path: Path
    newest: Name
    """Of the bridges on its way that are starting as well, and of the one that asks, the one with the greatest id."""


class FromClient(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """A client that is no member had it published; `(client, number)` names it. There may be copies."""

    client: Name
    number: Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]
    everywhere: bool = False


class Local(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    """Born here, for this cluster: the escape of a payload that begins like a heading."""


class Amid(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    """Born here, by a member of several clusters: what it had of the others (`core/order/overlap.py`)."""

    needs: Annotated[tuple[tuple[Name, tuple[tuple[Count, Count], ...]], ...], msgspec.Meta(max_length=MAX_GROUPS)]


Heading = Everywhere | Crossed | Probe | FromClient | Local | Amid

_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Heading)


def wrap(heading: Heading, payload: bytes) -> bytes:
    """The payload under a heading."""
    head = _encode(heading)
    if len(MARK) + len(head) + len(END) > MAX_HEADING:
        raise UsageError(f"a heading of {len(head)} bytes: shorter names of clusters and clients, please")
    return b"%b%b%b%b" % (MARK, head, END, payload)


def unwrap(payload: bytes) -> tuple[Heading | None, bytes]:
    """The heading, None for a local event, and the payload. `BadMessage` for what begins like a heading and is none."""
    if not payload.startswith(MARK):
        return None, payload
    end = payload.find(END, len(MARK), MAX_HEADING)
    if end < 0:
        raise BadMessage("a heading without an end")
    try:
        heading: Heading = _decoder.decode(payload[len(MARK) : end])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"no heading: {error}") from None
    return heading, payload[end + 1 :]


def everywhere(payload: bytes) -> bytes:
    """The payload of an event for all clusters that bridges join: `await seat.publish(everywhere(b"hello"))`."""
    return wrap(Everywhere(), payload)


def local(payload: bytes) -> bytes:
    """The payload of an event for this cluster, escaped if it would be read as a heading. For bytes that come from
    somewhere else: `await publisher.publish(local(line))`."""
    return wrap(Local(), payload) if payload.startswith(MARK) else payload


def believed(heading: Heading | None, owner: str, trusted: Container[str] | None) -> bool:
    """Whether this member may write this heading: those of bridges and doors only they may."""
    return trusted is None or not isinstance(heading, Crossed | Probe | FromClient) or address_of(owner) in trusted


class Said(msgspec.Struct, frozen=True, gc=False):
    """An event as an application reads it, from any cluster."""

    payload: bytes
    cluster: str
    """Where it was born."""
    id: str
    """Its id there. The one name it has everywhere."""
    path: tuple[str, ...] = ()
    """The clusters it came through; empty: born here."""
    scope: str = "local"
    """`local` or `global`."""
    client: str = ""
    """Who had it published, if that was no member; `number`: its how manyth."""
    number: int = 0

    @property
    def origin(self) -> str:
        """The member that published it, in its home cluster."""
        return owner_of(self.id)


class Reader:
    """Reads the events of one cluster: without headings, each once.

    Copies come only from clients that asked several members, and from bridges of several servers. Which numbers were
    read is the whole state of a reader: `state` and `restore` are for an application that gives its own to joiners.
    """

    def __init__(self, cluster: str, trusted: Collection[str] | None = None) -> None:
        """`trusted`: the addresses of the bridges and doors of this cluster; without it, every publisher can write what
        only they should."""
        self.cluster = cluster
        self.trusted = trusted
        self.forged = 0
        """Headings of bridges and doors that others wrote."""
        self.last: dict[tuple[str, str], int] = {}
        """By client, and the cluster where it had it published: the last number read."""
        self.brought: dict[tuple[str, str], tuple[int, int]] = {}
        """By tenure, and the cluster where it is: the highest seq that a shared bridge brought, and as bits which of
        those before it."""
        self.copies = 0
        self.malformed = 0

    def read(self, event: str, payload: bytes) -> Said | None:
        """The event of this id; None for what is not for the application."""
        try:
            heading, body = unwrap(payload)
        except BadMessage:
            self.malformed += 1
            return None
        if not believed(heading, owner_of(event), self.trusted):
            self.forged += 1
            return None
        match heading:
            case None | Local() | Amid():
                return Said(body, self.cluster, event)
            case Everywhere():
                return Said(body, self.cluster, event, scope="global")
            case Probe():
                return None
            case FromClient(client, number, beyond):
                said = Said(body, self.cluster, event, (), "global" if beyond else "local", client, number)
            case Crossed(home, path, _, client, number, shared):
                said = Said(body, path[0], home, path, "global", client, number)
                if shared and not client:
                    return said if self._new(said) else None
        return said if not said.client or self._first(said) else None

    def _first(self, said: Said) -> bool:
        key = (said.cluster, said.client)
        last = self.last.pop(key, 0)
        self.last[key] = max(last, said.number)  # put at the end: it was heard last
        if len(self.last) > MAX_CLIENTS:
            del self.last[next(iter(self.last))]
        self.copies += said.number <= last
        return said.number > last

    def _new(self, said: Said) -> bool:
        """The first copy, of those that the servers of a bridge brought."""
        tenure, seq = numbered(said.id)
        last, bits = self.brought.pop((said.cluster, tenure), (0, 0))
        ahead = seq - last
        new = ahead > 0 or (-ahead < WINDOW and not bits >> -ahead & 1)
        if ahead > 0:
            last, bits = seq, (bits << min(ahead, WINDOW) | 1) & ((1 << WINDOW) - 1)
        elif new:
            bits |= 1 << -ahead
        self.brought[said.cluster, tenure] = (last, bits)
        if len(self.brought) > MAX_CLIENTS:
            del self.brought[next(iter(self.brought))]
        self.copies += not new
        return new

    def state(self) -> bytes:
        """What `restore` takes."""
        rows = [(*key, n) for key, n in self.last.items()]
        return msgspec.msgpack.encode((rows, [(*key, *n) for key, n in self.brought.items()]))

    def restore(self, state: bytes) -> None:
        """Go on from another reader's state. `BadMessage` for anything else."""
        try:
            rows, brought = msgspec.msgpack.decode(state, type=_ReaderState) if state else ([], [])
        except msgspec.MsgspecError as error:
            raise BadMessage(f"no state of a reader: {error}") from None
        self.last = {(cluster, client): n for cluster, client, n in rows}
        self.brought = {(cluster, tenure): (last, bits) for cluster, tenure, last, bits in brought}


_ReaderState = tuple[list[tuple[str, str, int]], list[tuple[str, str, int, int]]]


def hop_of(event: EventId | FreeId) -> Hop:
    """An id as it travels."""
    return (-1, 0, event.seq, event.owner) if isinstance(event, FreeId) else (*event,)


def name_of(hop: Hop) -> str:
    """The id that travels so."""
    return str(FreeId(hop[3], hop[2]) if hop[0] < 0 else EventId(*hop))


def numbered(event: str) -> tuple[str, int]:
    """The tenure of an id, or its owner, whose events have rising numbers; and its number."""
    try:
        free = FreeId.parse(event)
        return free.owner, free.seq
    except ValueError:
        before, _, owner = event.partition("@")
        tenure, _, seq = before.rpartition(":")
        return f"{tenure}@{owner}", int(seq) if seq.isdecimal() and len(seq) < 20 else 0
