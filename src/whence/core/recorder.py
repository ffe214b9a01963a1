"""A member's outputs as trace rows: the same for the simulator and for live runs (docs/trace.md).

A step of a frame is a row for each of its events; `lseq` counts the rows of one member. Messages are not rows: an
audit needs to know when an event was published, first seen, delivered or dropped, and by whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from whence.audit.trace.schema import Row
from whence.core import ports
from whence.core.clock import NEVER, AnyFrame, Entry, Frame, Incarnation, MemberId, StampedFrame
from whence.core.clock.bounds import keep_last

Sink = Callable[[Row], object]
"""Where rows go: a trace writer's `write`, or a list's `append`."""

HELD: Final = 1 << 16
"""Events that are counted as held at most; beyond, the oldest is forgotten."""


class Recorder:
    """Writes the rows of one member, in one life, in one cluster."""

    __slots__ = ("_cluster", "_held", "_lseq", "_member", "_order", "_previous", "_resumed", "_run", "_sink")

    def __init__(
        self,
        sink: Sink,
        *,
        run: str,
        cluster: str,
        member: MemberId,
        order: str,
        previous: MemberId | None = None,
        resumed: bytes | None = None,
    ) -> None:
        """`previous`: the life whose checkpoint this one resumes. `resumed`: that checkpoint, if its life recorded it
        by `saving`."""
        self._sink = sink
        self._run = run
        self._cluster = cluster
        self._member = member
        self._order = order
        self._previous = previous
        self._resumed = None if resumed is None else _token(resumed)
        self._lseq = 0
        self._held: dict[str, None] = {}

    def record(self, outputs: Iterable[ports.Output], t_ns: int) -> None:
        """The rows of one step's outputs, in their order."""
        for out in outputs:
            match out:
                case ports.Send() | ports.MemberUp() | ports.MemberDown():
                    pass
                case ports.Refused() | ports.Remember() | ports.Copied() | ports.Behind():
                    pass
                case ports.Published(frame):
                    self._frame("publish", frame, t_ns)
                case ports.Arrived(frame, sender, age, recovered):
                    self._frame("receive", frame, t_ns, peer=sender, age=age, reason="recovered" if recovered else None)
                case ports.Deliver(StampedFrame(direct=True)):
                    pass  # to one member: no event of the cluster
                case ports.Deliver(frame, over_gap, alert):
                    said = ["gap"] * over_gap + [f"alert {alert}"] * bool(alert)
                    self._frame("deliver", frame, t_ns, reason=" ".join(said) or None)
                case ports.Dropped(frame, reason):
                    self._frame("drop", frame, t_ns, reason=reason)
                case ports.Asked(ranges, peers):
                    for wanted in ranges:
                        asked = " ".join(peers)
                        self.row("recover", t_ns, ticket=_ticket(wanted), reason=f"ask {_range(wanted)}", peer=asked)
                case ports.GaveUp(ranges, reason):
                    for gone in ranges:
                        self.row("recover", t_ns, ticket=_ticket(gone), reason=f"give up {_range(gone)}: {reason}")
                case ports.Moved(generation, entries, keys, own):
                    who = "own" if own else "seen"
                    self.row("clock", t_ns, reason=f"{who} generation {generation:x}: R {entries}, K {keys}")
                case ports.Contracted(broken, promise, bound, alerts, in_flight):
                    what = "broken" if broken else "kept again"
                    text = f"{what}: bound {bound:.2e}, alerts {alerts:.2e}, promise {promise:.2e}, X {in_flight:.1f}"
                    self.row("clock", t_ns, reason=f"contract {text}")
                case ports.Ticket(change, ticket, inc, reason):
                    self.row("ticket", t_ns, ticket=ticket, reason=f"{change} {inc} {reason}".rstrip())
                case ports.TakeSnapshot(token):
                    self.row("snapshot", t_ns, token=token)
                case ports.InstallSnapshot():
                    pass  # the `join` row that follows names its token
                case ports.Joined(how, token):
                    self._held.clear()  # what waited here is in the state that it goes on with, or will be told of
                    peer, resumed = (self._previous, self._resumed) if how == "checkpoint" else (None, None)
                    self.row("join", t_ns, reason=how, order=self._order, token=token or resumed, peer=peer)
                case ports.Left():
                    self.row("leave", t_ns)
                case ports.CutOff(peer, error):
                    self.row("cutoff", t_ns, peer=peer, reason=error)

    def saving(self, checkpoint: bytes, t_ns: int) -> None:
        """The checkpoint is about to be written. A process killed before that resumes from the one before: the rows in
        between tell of deliveries that were never handed on, and the tokens say which those are."""
        self.row("snapshot", t_ns, token=_token(checkpoint))

    def row(self, kind: str, t_ns: int, **fields: Any) -> None:
        """One row, with these fields of `Row` beside who, when and which kind; a runtime writes `crash` and `fault`
        rows this way."""
        self._sink(Row(self._run, self._cluster, self._member, self._lseq, t_ns, kind, **fields))
        self._lseq += 1

    def _frame(self, kind: str, frame: AnyFrame, t_ns: int, **fields: Any) -> None:
        """One row for each event of the frame."""
        if kind == "publish":
            fields["bytes"], fields["control"] = len(frame.body) // frame.count, frame.header // frame.count
        fields["origin"] = frame.owner
        if isinstance(frame, Frame):
            fields["ticket"] = frame.ticket
        for seq, name in enumerate(frame.names(), frame.first):
            fields["event"] = name
            if kind == "publish":
                fields["clock"] = _clock_of(frame, seq)
            elif kind == "receive":
                fields["held"] = self._hold(name)
            else:
                self._held.pop(name, None)
            self.row(kind, t_ns, **fields)

    def _hold(self, name: str) -> int:
        """The event waits here from now on; how many do. A member's own buffers have smaller bounds than this."""
        self._held[name] = None
        keep_last(self._held, HELD)
        return len(self._held)


def _token(checkpoint: bytes) -> str:
    from hashlib import blake2b  # lazily: it takes memory, and few members have a disk and a trace

    return f"checkpoint {blake2b(checkpoint, digest_size=12).hexdigest()}"


def _clock_of(frame: AnyFrame, seq: int) -> str:
    if isinstance(frame, Frame):
        return show_clock(frame.timestamp(seq))
    if isinstance(frame, StampedFrame):
        return frame.stamp.hex()
    vector = " ".join(map(str, frame.vector.vector()))
    return f"{frame.generation:x} {','.join(map(str, frame.keys))} {vector}"


def show_clock(entries: Iterable[Entry]) -> str:
    """`incarnation:seq` per ticket, `-` for none."""
    return " ".join("-" if e == NEVER else f"{Incarnation.unpack(e[0])}:{e[1]}" for e in entries)


def _ticket(wanted: ports.AnySpan) -> int | None:
    return wanted[0] if isinstance(wanted[0], int) else None


def _range(wanted: ports.AnySpan) -> str:
    of, inc, first, last = wanted
    run = f"{first}" + (f"-{last}" if last > first else "")
    if isinstance(of, int):
        return f"{Incarnation.unpack(inc)}:{run}"
    return f"frames {run} of {of}" if of else f"{last} frames of owners unknown"
