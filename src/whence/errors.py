"""Errors, by who is at fault: a caller's misuse is never a peer's bad bytes (style: h11)."""

from __future__ import annotations


class WhenceError(Exception):
    """Base of all errors of this package."""


class UsageError(WhenceError):
    """The caller asked for something that makes no sense; the message says what to do instead."""


class ConfigError(UsageError):
    """A setting or a scenario file is wrong; the message names the field."""


class CyclicTopology(ConfigError):
    """Clusters or subgroups joined in a circle: events would come, and be multicast, more than once. The message names
    the circle."""


class NotPublished(WhenceError):
    """Something that was to be published is not."""

    published: tuple[str, ...] = ()
    """Of many that were to be published, the ids of those that were."""


class NoTicket(NotPublished, TimeoutError):
    """There was no ticket in time; the message says why, and what to do."""


class LostTicket(NotPublished):
    """The ring took the ticket away. A `Publisher` gets another by itself; a seat ends with its ticket."""


class TimedOut(TimeoutError, WhenceError):
    """What was waited for did not come true in time."""


class TooFewCopies(TimedOut):
    """Fewer members hold an event than `copies` asked for; the message says how many do."""

    published: tuple[str, ...] = ()
    """The ids of the events: they are published all the same. Empty: nothing was published, because the cluster has
    fewer members than that."""
    copies: int = 0
    """Members that hold them, this one among them."""


class NotJoined(TimeoutError, WhenceError):
    """The cluster could not be joined in time; the message says which seeds gave no answer."""


class NotAccepted(TimeoutError, WhenceError):
    """No member, or not enough of them, took an event from outside in time; the message says what each answered. It may
    be published all the same: try again under the same client and number."""


class ClusterClosed(WhenceError):
    """The cluster was left, or its node failed; the message, or the cause, says why."""


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


class WrongKind(BadFrame):
    """What belongs to a cluster with tickets came in one without, or the other way round."""


class AbsurdClock(BadFrame):
    """A timestamp that no run of the protocol can have produced from here."""


class ForgedTicket(BadFrame):
    """A frame published under a ticket that its owner does not hold."""


class Unauthentic(RemoteError):
    """Bytes that no holder of the cluster's keys sent now: forged, replayed, stale, or under another key. Whoever sent
    them is unknown: they are dropped and counted, and no member is blamed for them."""


class TraceError(WhenceError):
    """A trace that cannot be read or written; the message names file, position and reason."""


class UnknownOrder(TraceError, UsageError):
    """A member promises a delivery order that this version does not know, so nothing it does can be judged; the message
    names the member and the known orders."""


class KeysError(UsageError):
    """A key, certificate or secret file is missing, in the way, or not what it should be; the message names it."""


class DiskError(WhenceError):
    """The journal cannot be read or written; the message names the file and the reason."""


class CorruptJournal(DiskError):
    """The journal is damaged beyond what a crash can do. Going on without it would show events twice."""


class JournalInUse(DiskError, UsageError):
    """Another process has this journal open."""


class AdapterError(WhenceError):
    """A system under the conformance kit does not start, does not speak the format, hangs or dies; the message names
    the node and what it did."""


class HistoryError(WhenceError):
    """A client history that cannot be read or checked; the message names the file, the line and the text."""


class FleetError(WhenceError):
    """A process of a fleet does not start, does not answer or has died; the message names it and shows the end of its
    output."""
