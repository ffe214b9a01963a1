"""How large anything from a peer may be, as types: msgspec refuses what is larger, or out of range, while it decodes.

All members of a cluster have the same bounds: what one may publish every other must accept, or it cuts off whoever
forwards it. The length in bytes is checked first. Decoding a message of `b` bytes builds at most about `32 b` bytes of
objects (the worst cases are very short strings and clock entries), so `MAX_MESSAGE_BYTES` bounds the memory of one
message, too. The bounds on counts then keep one well-formed message from filling a room's tables.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from msgspec import Meta

from whence.errors import ConfigError

MAX_MESSAGE_BYTES = 4 << 20
"""Bytes of one message, datagram or stream, header included. A datagram cannot pass 65,507 anyway; the streams' large
messages are snapshots and recovered frames. A stream decoder holds at most this and the 4 bytes of a length."""
MAX_ITEMS = 4096
"""Frames and news in one message, ranges in one RECOVER, keys in one announcement."""
MAX_MEMBERS = 65_536
"""Member ids in one message: a whole full view in a snapshot; gossip carries about 10."""
MAX_TICKETS = 1024
"""Entries of a vector clock, hence of every table per ticket. `n` of the cluster is checked by the member."""
MAX_ENTRIES = 4096
"""R: entries of an (N, R, K) clock. Its keys are at most as many."""
MAX_OWNERS = 8192
"""Owners in one message of a cluster without tickets: cursors in a snapshot, rows of a digest."""
MAX_TENURES = 65_536
"""Rows of a table that has one per tenure: orphans beside a vector, tails and owners in a snapshot. At least the number
of tickets times the tenures of one that are remembered (`CctClock.MAX_TAILS`)."""
MAX_VOTERS = 33
"""Voters of one council: `2k+1` with the largest k."""
MAX_STAMP_BYTES = 1 << 20
"""Bytes of a mechanism's control information in a frame, or of its state in a snapshot. The first generation carries
whole messages there (`SurveyConfig.max_carried_bytes`); all others need far less."""
MAX_PAYLOAD_BYTES = 1 << 20
"""Bytes of one event's payload."""
MAX_FRAME_BYTES = 2 << 20
"""Bytes of one frame's body: all its payloads, encoded."""
MAX_FRAME_EVENTS = 4096
"""Events in one frame. More make better use of a message, and a larger unit of loss and recovery."""
MAX_NEWS_BYTES = 8192
"""Bytes of the body of a News: the largest names every ticket once."""
MAX_NAME = 255
"""Characters of a member id or a cluster's name: the packet header has one length byte for each."""
MAX_STATE_BYTES = 3 << 20
"""Bytes of the application's state in one message. With the clock and the member list it stays within
`MAX_MESSAGE_BYTES`."""
MAX_WHOLE_STATE = 256 << 20
"""Bytes of the application's state: what is more than one message holds follows in parts."""
MAX_SEQ = (1 << 32) - 1

T = TypeVar("T")
Items = Annotated[tuple[T, ...], Meta(max_length=MAX_ITEMS)]
Members = Annotated[tuple[T, ...], Meta(max_length=MAX_MEMBERS)]
PerTicket = Annotated[tuple[T, ...], Meta(max_length=MAX_TICKETS)]
PerOwner = Annotated[tuple[T, ...], Meta(max_length=MAX_OWNERS)]
PerTenure = Annotated[tuple[T, ...], Meta(max_length=MAX_TENURES)]

Count = Annotated[int, Meta(ge=0)]
"""A nonce, an era, an incarnation: never negative, and at most 64 bits, as msgpack has them."""
Seq = Annotated[int, Meta(ge=0, le=MAX_SEQ)]
TicketIndex = Annotated[int, Meta(ge=0, lt=MAX_TICKETS)]
MemberId = Annotated[str, Meta(max_length=MAX_NAME, pattern=r"^[!-~]+#(0|[1-9][0-9]{0,19})\Z")]
"""`address#boot`: one life of one process. A restart has a higher boot, hence another id. The boot is in canonical
decimal: two spellings would be two members."""
MaybeMember = Annotated[str, Meta(max_length=MAX_NAME, pattern=r"^(|[!-~]+#(0|[1-9][0-9]{0,19}))\Z")]
"""The same, or empty: nobody."""
Text = Annotated[str, Meta(max_length=512, pattern=r"^[ -~]*\Z")]
"""A token or a reason: printable ASCII, safe in a log line. A token is a member id and a number."""
Signature = Annotated[bytes, Meta(max_length=128)]
"""A publisher's (Ed25519: 64 bytes)."""


def keep_last(table: dict[Any, Any], most: int) -> int:
    """Forget the oldest entries of a table until it has at most so many; how many were forgotten."""
    forgotten = 0
    while len(table) > most:
        del table[next(iter(table))]
        forgotten += 1
    return forgotten


def earliest(one: int | None, other: int | None) -> int | None:
    """The earlier of two times; None: never."""
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def need(ok: bool, what: str) -> None:
    """A check of a setting: `what` is wrong unless it is `ok`."""
    if not ok:
        raise ConfigError(what)
