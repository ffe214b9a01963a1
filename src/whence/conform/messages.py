"""Maelstrom's message format: one JSON object a line, `{"src": ..., "dest": ..., "body": {...}}` (docs/conform.md).

What a node sends to the client is checked here; what nodes send to each other is their own affair and passes unread.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from whence.errors import AdapterError

Body = dict[str, Any]

CLIENT: Final = "c1"
"""Who the kit is in the system's eyes."""
LINE_LIMIT: Final = 1 << 20
"""Bytes of one line. A node that writes a longer one is not understood."""

FEATURES: Final = {
    "fifo": "events of one node are delivered in the order in which it published them",
    "causal": "no effect is delivered before its cause",
    "reliable": "every event that was accepted is delivered by every node that stays",
    "datagrams": "messages between nodes may arrive in another order, and more than once",
    "loss": "messages between nodes may get lost",
    "late-join": "a node that is started later gets all that was delivered before",
    "restart": "a node that is killed can be started again, and goes on",
}
"""What a system may claim."""
DEFAULT_CLAIMS: Final = ("fifo", "causal", "reliable")
"""What a system is taken to claim when its `init_ok` has no `features`."""

UNAVAILABLE: Final = 11
"""Maelstrom's code for "definitely not now": the kit asks again."""


class Envelope(msgspec.Struct, frozen=True):
    """A message as it travels."""

    src: str
    dest: str
    body: Body


class Said(msgspec.Struct, frozen=True):
    """An event as a node names it."""

    id: str
    value: str


_decoder = msgspec.json.Decoder(Envelope)


def decode(line: bytes, node: str) -> Envelope:
    """The message in this line of a node's output."""
    try:
        envelope = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AdapterError(
            f'{node} wrote what is no message: {shown(line)} ({error}); every line of standard output is {{"src": ..., '
            '"dest": ..., "body": {...}}, anything else belongs on standard error'
        ) from None
    if envelope.src != node:
        raise AdapterError(f"{node} sent a message as {envelope.src!r}: {shown(line)}")
    return envelope


def encode(envelope: Envelope) -> bytes:
    """The line, with its end."""
    return msgspec.json.encode(envelope) + b"\n"


def features_of(body: Body, node: str) -> tuple[str, ...]:
    """What this `init_ok` claims."""
    said = body.get("features", list(DEFAULT_CLAIMS))
    if not isinstance(said, list) or (unknown := [f for f in said if f not in list(FEATURES)]):
        what = unknown if isinstance(said, list) else said
        raise AdapterError(f"{node} claims features that nobody knows: {what!r} (known: {', '.join(FEATURES)})")
    return tuple(f for f in FEATURES if f in said)


def said(body: Body, node: str) -> Said:
    """The event that a `delivered` is about, or one of an `installed`."""
    event, value = body.get("id"), body.get("value")
    if isinstance(event, bool) or not isinstance(event, str | int) or not isinstance(value, str):
        raise AdapterError(f"{node} names an event by {body!r}: want an id (text or integer) and a value (text)")
    return Said(str(event), value)


def shown(line: bytes) -> str:
    """Enough of a line to recognise it."""
    text = repr(line.decode("utf-8", "replace").rstrip("\n"))
    return text if len(text) <= 120 else text[:117] + "..."
