"""Maelstrom's message format: one JSON object a line, `{"src": ..., "dest": ..., "body": {...}}` (docs/conform.md).

Messages to the client are checked here. Messages between nodes are passed on unread.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from whence.errors import AdapterError

Body = dict[str, Any]

CLIENT: Final = "c1"
"""The kit's name as a client."""
LINE_LIMIT: Final = 1 << 20
"""The longest line in bytes."""

FEATURES: Final = {
    "fifo": "events of one node are delivered in the order in which it published them",
    "causal": "no effect is delivered before its cause",
    "reliable": "every event that was accepted is delivered by every node that stays",
    "datagrams": "messages between nodes may arrive in another order, and more than once",
    "loss": "messages between nodes may get lost",
    "late-join": "a node that is started later gets all that was delivered before",
    "restart": "a node that is killed can be started again, and goes on",
}
"""The claims that a system can make."""
DEFAULT_CLAIMS: Final = ("fifo", "causal", "reliable")
"""The claims of a system whose `init_ok` has no `features`."""

UNAVAILABLE: Final = 11
"""Maelstrom's code for "temporarily unavailable": the kit retries."""


class Envelope(msgspec.Struct, frozen=True):
    """A message on the wire."""

    src: str
    dest: str
    body: Body


class Said(msgspec.Struct, frozen=True):
    """An event as reported by a node."""

    id: str
    value: str


_decoder = msgspec.json.Decoder(Envelope)


def decode(line: bytes, node: str) -> Envelope:
    """The message in this line of a node's output."""
    try:
        envelope = _decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AdapterError(
            f"{node} wrote a line that is not a message: {shown(line)} ({error}); every line of standard output is "
            '{"src": ..., "dest": ..., "body": {...}}, anything else belongs on standard error'
        ) from None
    if envelope.src != node:
        raise AdapterError(f"{node} sent a message as {envelope.src!r}: {shown(line)}")
    return envelope


def encode(envelope: Envelope) -> bytes:
    """The line, with its newline."""
    return msgspec.json.encode(envelope) + b"\n"


def features_of(body: Body, node: str) -> tuple[str, ...]:
    """The claims in this `init_ok`."""
    said = body.get("features", list(DEFAULT_CLAIMS))
    if not isinstance(said, list) or (unknown := [f for f in said if f not in list(FEATURES)]):
        what = unknown if isinstance(said, list) else said
        raise AdapterError(f"{node} claims unknown features: {what!r} (known: {', '.join(FEATURES)})")
    return tuple(f for f in FEATURES if f in said)


def said(body: Body, node: str) -> Said:
    """The event that a `delivered` is about, or one of an `installed`."""
    event, value = body.get("id"), body.get("value")
    if isinstance(event, bool) or not isinstance(event, str | int) or not isinstance(value, str):
        raise AdapterError(f"{node} names an event by {body!r}: want an id (text or integer) and a value (text)")
    return Said(str(event), value)


def shown(line: bytes) -> str:
    """A shortened line, for error messages."""
    text = repr(line.decode("utf-8", "replace").rstrip("\n"))
    return text if len(text) <= 120 else text[:117] + "..."
