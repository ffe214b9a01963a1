"""Errors, by who is at fault: a caller's misuse is never a peer's bad bytes (style: h11)."""

from __future__ import annotations


class WhenceError(Exception):
    """Base of all errors of this package."""


class UsageError(WhenceError):
    """The caller asked for something that makes no sense; the message says what to do instead."""


class ConfigError(UsageError):
    """A setting or a scenario file is wrong; the message names the field."""


class RemoteError(WhenceError):
    """A peer broke the protocol. It is cut off; nobody else is disturbed."""


class BadMessage(RemoteError):
    """Bytes that are no message: truncated, unknown, wrongly typed."""


class TooLarge(RemoteError):
    """A length beyond its cap, refused before anything is allocated for it."""


class WrongVersion(RemoteError):
    """The peer speaks another version of the protocol."""


class BadFrame(RemoteError):
    """A frame that contradicts itself or the cluster's settings."""


class AbsurdClock(BadFrame):
    """A timestamp that no run of the protocol can have produced from here."""


class ForgedTicket(BadFrame):
    """A frame published under a ticket that its owner does not hold."""


class TraceError(WhenceError):
    """A trace that cannot be read or written; the message names file, position and reason."""
