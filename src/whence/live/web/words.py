"""What is said between a worker and its clients, what workers publish for them, and cursors. Pure.

A connection is one client in one room, and its words are JSON objects, one a message:

    client:  hello  pub  op  here  took  rows
    worker:  welcome  ev  here  why  behind

Rules of this package:

1. A client has a **key**, a secret that it chooses. Its **name** is a hash of its user and key: others see the name and
   cannot take it over.
2. A client numbers what it publishes, 1, 2, 3, ... `(room, name, number)` names an event at every worker, so a client
   may send it again, at any worker, until it comes back in the room's order: that is its receipt. Workers drop copies.
3. A **cursor** says which events of a room a client was given: of each tenure of a ticket the last one. Members share
   these ids, so it is good at any worker. A worker gives its events that the cursor lacks, in its own order. That order
   extends causal order, and the cursor is closed under causes, so nothing comes before its cause.
4. A worker serves a cursor when it has delivered all that the cursor covers: what the client publishes then has these
   events in its past.
5. A worker gives its clients an event that it published itself, and what comes after it, only when a second member
   holds it. So no crash of one worker leaves a client with an event that nobody else has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Annotated, Any, Final

import msgspec

from whence.core.clock import Incarnation
from whence.errors import RemoteError, UsageError
from whence.live.objects.kernel import EventStamp

VERSION: Final = 1
MAX_ROOM: Final = 128
"""Characters of a room's name."""
MAX_DATA: Final = 64 << 10
"""Bytes of an event's data, and of a register's value."""
MAX_WORD: Final = 400 << 10
"""Bytes of a client's message: an update of a document, in base64, fits."""
MAX_PRESENCE: Final = 1024
"""Bytes of what a client says of itself while it is there."""
KEPT: Final = 16
"""Tenures of a ticket that a cursor names; older ones are settled (`CctClock.MAX_TAILS`)."""


class CloseCode(IntEnum):
    """Why a worker closes a connection: the code of the WebSocket. Its reason says more."""

    NONSENSE = 4400  # what the client said is no word of this protocol
    REFUSED = 4401  # the application does not let this client in
    FORBIDDEN = 4403  # the client may not publish here
    HALF_OPEN = 4408  # no hello came in time
    REPLACED = 4409  # the same client has connected again: this connection is the older one
    FUTURE = 4412  # the cursor, or a number, is ahead of all that this worker learned in time
    TOO_LARGE = 4413  # a message is larger than allowed
    IMPOSTOR = 4415  # the client says it is somebody whose key it does not have
    ORIGIN = 4421  # a page of a foreign origin has connected
    TOO_MANY = 4429  # there are as many connections, or rooms, as there may be
    SLOW = 4430  # the client took nothing for too long
    LEAVING = 4503  # the worker stops, or has lost its cluster: connect to another one
    FULL = 4507  # the objects of this cluster are as large as they may be


class HangUp(RemoteError):
    """A connection has to end; `code` and the text are what the client is told."""

    def __init__(self, code: CloseCode, why: str) -> None:
        super().__init__(why)
        self.code = code


# -- cursors --------------------------------------------------------------------------------------------------------

Tenure = tuple[int, int]
"""`(ticket, incarnation)`."""


class Position:
    """Which events were given, or delivered: of each tenure all up to one (rule 3)."""

    __slots__ = ("upto",)

    def __init__(self, upto: dict[Tenure, int] | None = None) -> None:
        self.upto: dict[Tenure, int] = {} if upto is None else upto

    def add(self, ticket: int, inc: int, seq: int) -> None:
        """This event, and all before it of its tenure."""
        tenure = (ticket, inc)
        if tenure in self.upto:
            self.upto[tenure] = max(seq, self.upto[tenure])
            return
        self.upto[tenure] = seq
        mine = sorted(i for t, i in self.upto if t == ticket)
        for old in mine[:-KEPT]:
            del self.upto[ticket, old]

    def has(self, ticket: int, inc: int, seq: int) -> bool:
        """It was given. Of tenures older than those named, everything was."""
        upto = self.upto.get((ticket, inc))
        if upto is not None:
            return seq <= upto
        mine = [i for t, i in self.upto if t == ticket]
        return len(mine) >= KEPT and inc < min(mine)

    def covers(self, other: Position) -> bool:
        """All that was given there was given here."""
        return all(self.has(ticket, inc, seq) for (ticket, inc), seq in other.upto.items())

    def text(self) -> dict[str, int]:
        """As clients keep it."""
        return {f"{ticket}:{Incarnation.unpack(inc)}": seq for (ticket, inc), seq in self.upto.items()}

    @classmethod
    def parse(cls, text: dict[str, int]) -> Position:
        """The inverse of `text`; raises `HangUp` for anything else."""
        try:
            found: dict[Tenure, int] = {}
            for name, seq in text.items():
                ticket, _, inc = name.partition(":")
                found[int(ticket), Incarnation.parse(inc).packed] = seq
        except (ValueError, OverflowError):
            raise HangUp(CloseCode.NONSENSE, "not a cursor: want ticket:epoch.term.count and a number") from None
        return cls(found)


# -- what a client says ---------------------------------------------------------------------------------------------

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Number = Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
Whole = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class _Word(msgspec.Struct, frozen=True, tag_field="t"):
    pass


class Hello(_Word, frozen=True, tag="hello"):
    """The first word. `me`: the name that it had; `run` and `cursor`: what it was given there."""

    v: int
    key: Annotated[str, msgspec.Meta(min_length=16, max_length=64)]
    me: Annotated[str, msgspec.Meta(max_length=32)] = ""
    token: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    run: Annotated[str, msgspec.Meta(max_length=64)] = ""
    cursor: Annotated[dict[str, Whole], msgspec.Meta(max_length=1024 * KEPT)] | None = None


class Pub(_Word, frozen=True, tag="pub"):
    """Publish this JSON value as an event."""

    n: Number
    d: msgspec.Raw


class Operate(_Word, frozen=True, tag="op"):
    """Change an object: `["set", object, key, value]`, `["del", object, key]`, `["add", object, amount]`,
    `["edit", document, base64 of a Yjs update]`."""

    n: Number
    o: Annotated[list[Any], msgspec.Meta(min_length=3, max_length=4)]


class Here(_Word, frozen=True, tag="here"):
    """What the client says of itself to whoever is there; null: it is there no more."""

    d: msgspec.Raw


class Took(_Word, frozen=True, tag="took"):
    """How many events of this connection the client has taken: the worker sends only so many ahead."""

    k: Whole


class Rows(_Word, frozen=True, tag="rows"):
    """Steps of the client for the trace: `[lseq, milliseconds, kind, event]`."""

    r: Annotated[list[tuple[Whole, float, str, str]], msgspec.Meta(max_length=512)]


ClientWord = Hello | Pub | Operate | Here | Took | Rows
_words: msgspec.json.Decoder[ClientWord] = msgspec.json.Decoder(ClientWord)


def heard(text: str | bytes) -> ClientWord:
    """A client's word; raises `HangUp`."""
    if len(text) > MAX_WORD:
        raise HangUp(CloseCode.TOO_LARGE, f"a message of {len(text)} bytes; at most {MAX_WORD}")
    try:
        return _words.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise HangUp(CloseCode.NONSENSE, f"not a word: {error}") from None


def name_of(user: str, key: str) -> str:
    """Rule 1."""
    return hashlib.blake2b(f"{user}\0{key}".encode(), digest_size=8).hexdigest()


# -- what workers publish -------------------------------------------------------------------------------------------

MARK: Final = b"\x0e\x01"
"""How an event of a room begins, with the version. No text and no JSON does; objects, requests and bridges have other
marks."""


class Spoken(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a client says in a room, by way of a worker."""

    room: Name
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
    """The client (rule 1)."""
    user: Annotated[str, msgspec.Meta(max_length=255)]
    number: Whole
    """Of its events and operations; 0: what it says of itself while it is there."""
    data: bytes
    """JSON, or an operation (`objects.kernel`); of `number` 0, empty: it has gone."""


_said = msgspec.msgpack.Decoder(Spoken)
_encode = msgspec.msgpack.Encoder().encode


def payload_of(said: Spoken) -> bytes:
    """The payload of the event."""
    return MARK + _encode(said)


def said_in(payload: bytes) -> Spoken | None:
    """What was said in a room; None: the event is of something else, or malformed."""
    if not payload.startswith(MARK):
        return None
    try:
        return _said.decode(memoryview(payload)[len(MARK) :])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def stamp_text(stamp: EventStamp) -> str:
    """A stamp as text that compares as it does: clients let the greatest one win, too."""
    a, b, c, ticket, inc, seq, owner = stamp
    return f"{a:06x}{b:016x}{c:014x}{ticket:04x}{inc:016x}{seq:010x}{owner}"


json = msgspec.json.Encoder().encode


def text_of(**word: Any) -> str:
    """A worker's word."""
    return json(word).decode()


def events_word(texts: Iterable[str]) -> str:
    """`ev`, from events that are JSON already."""
    return f'{{"t":"ev","e":[{",".join(texts)}]}}'


def checked_room(name: str) -> str:
    """The room's name, if it can be one."""
    if not 1 <= len(name) <= MAX_ROOM or not name.isprintable() or "/" in name:
        raise UsageError(f"a room's name has 1 to {MAX_ROOM} printable characters without a slash, not {name[:80]!r}")
    return name
