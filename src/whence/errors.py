"""Errors, by who is at fault: a caller's misuse is never a peer's bad bytes (style: h11)."""

from __future__ import annotations


class WhenceError(Exception):
    """Base of all errors of this package."""


class UsageError(WhenceError):
    """The caller's mistake; the message says what is wrong and what to do instead."""


class ConfigError(UsageError):
    """A setting or a scenario file is wrong; the message names the field."""


class CyclicTopology(ConfigError):
    """Clusters or subgroups are connected in a cycle, so events would arrive more than once. The message names the
    cycle."""


class NotPublished(WhenceError):
    """Not everything was published."""

    published: tuple[str, ...] = ()
    """The ids of the events that were published."""


class NoTicket(NotPublished, TimeoutError):
    """There was no ticket in time; the message says why, and what to do."""


class TimedOut(TimeoutError, WhenceError):
    """A timeout expired before the condition was met."""


class TooFewCopies(TimedOut):
    """Fewer members hold an event than `copies` asked for; the message says how many do."""

    published: tuple[str, ...] = ()
    """The ids of the events: they are published all the same. Empty: nothing was published, because the cluster has
    fewer members than that."""
    copies: int = 0
    """Members that hold them, this one among them."""


class LeftOut(NotPublished):
    """Total order: the publisher lost its ticket before a quorum of voters held these events, so they have no place in
    the one sequence. Members in other orders may have delivered them. One that a later event depends on may still get a
    place just before that event."""


class Jumped(WhenceError):
    """Total order: what this member lacks nobody holds any more, so it cannot go on without a hole. Join again, without
    the old directory: the new life begins with a snapshot."""


class Forked(WhenceError):
    """Total order: the ring was founded anew by force, and this member had delivered what the new one may not have.
    Join again, without the old directory."""


class NotJoined(TimeoutError, WhenceError):
    """The cluster could not be joined in time; the message says which contacts gave no answer."""


class NotAccepted(TimeoutError, WhenceError):
    """Too few members accepted a client's event in time; the message says what each answered. The event may have been
    published: retry with the same client and number, which publishes it at most once."""


class ClusterClosed(WhenceError):
    """The cluster was left, or its node failed; the message, or the cause, says why."""


class RemoteError(WhenceError):
    """A peer broke the protocol. That peer is cut off; other peers are not affected."""


class BadMessage(RemoteError):
    """Bytes that are no message: truncated, unknown, wrongly typed."""


class TooLarge(RemoteError):
    """A length above its limit; refused before any memory is allocated."""


class WrongVersion(RemoteError):
    """The peer speaks another version of the protocol."""


class BadFrame(RemoteError):
    """A frame that contradicts itself or the cluster's settings."""


class WrongKind(BadFrame):
    """A message of a cluster with tickets arrived in one without, or the other way round."""


class AbsurdClock(BadFrame):
    """A timestamp that no run of the protocol can have produced from here."""


class ForgedTicket(BadFrame):
    """A frame published under a ticket that its owner does not hold."""


class Unauthentic(RemoteError):
    """Bytes that fail authentication: forged, replayed, stale, or under another key. Their sender is unknown, so they
    are dropped and counted, and no member is blamed."""


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
