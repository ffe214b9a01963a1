"""A member's outputs as trace rows: the same for the simulator and for live runs (docs/trace.md).

One row per event and step, `lseq` counting the rows of one member. Sends and receipts of messages are not rows; what
matters to an audit is when an event was published, first seen, delivered or dropped, and by whom.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from whence import ports
from whence.clock import NEVER, Entry, Frame, Incarnation, MemberId
from whence.trace.schema import Row

Sink = Callable[[Row], object]
"""Where rows go: a trace writer's `write`, or a list's `append`."""


class Recorder:
    """Writes the rows of one member, in one life, in one cluster."""

    __slots__ = ("_cluster", "_lseq", "_member", "_order", "_previous", "_resumed", "_run", "_sink")

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
        """`previous`: the life whose checkpoint this one goes on from, if it does. `resumed`: that checkpoint, if its
        life recorded it by `saving`."""
        self._sink = sink
        self._run = run
        self._cluster = cluster
        self._member = member
        self._order = order
        self._previous = previous
        self._resumed = None if resumed is None else _token(resumed)
        self._lseq = 0

    def record(self, outputs: Iterable[ports.Output], t_ns: int) -> None:
        """The rows of one step's outputs, in their order."""
        for out in outputs:
            match out:
                case ports.Send() | ports.Refused():
                    pass
                case ports.Published(frame):
                    self._frame("publish", frame, t_ns)
                case ports.Arrived(frame, sender, age, recovered):
                    self._frame("receive", frame, t_ns, peer=sender, age=age, reason="recovered" if recovered else None)
                case ports.Deliver(frame, over_gap):
                    self._frame("deliver", frame, t_ns, reason="gap" if over_gap else None)
                case ports.Dropped(frame, reason):
                    self._frame("drop", frame, t_ns, reason=reason)
                case ports.Asked(ranges, peers):
                    for wanted in ranges:
                        self.row(
                            "recover", t_ns, ticket=wanted[0], reason=f"ask {_range(wanted)}", peer=" ".join(peers)
                        )
                case ports.GaveUp(ranges, reason):
                    for gone in ranges:
                        self.row("recover", t_ns, ticket=gone[0], reason=f"give up {_range(gone)}: {reason}")
                case ports.Ticket(change, ticket, inc, reason):
                    self.row("ticket", t_ns, ticket=ticket, reason=f"{change} {inc} {reason}".rstrip())
                case ports.TakeSnapshot(token):
                    self.row("snapshot", t_ns, token=token)
                case ports.InstallSnapshot():
                    pass  # the `join` row that follows names its token
                case ports.Joined(how, token):
                    peer, resumed = (self._previous, self._resumed) if how == "checkpoint" else (None, None)
                    self.row("join", t_ns, reason=how, order=self._order, token=token or resumed, peer=peer)
                case ports.Left():
                    self.row("leave", t_ns)
                case ports.CutOff(peer, error):
                    self.row("cutoff", t_ns, peer=peer, reason=error)

    def saving(self, checkpoint: bytes, t_ns: int) -> None:
        """The checkpoint is about to go to disk. A process killed before it is there goes on from the one before: the
        rows in between tell of deliveries that were never handed on, and the tokens say which those are."""
        self.row("snapshot", t_ns, token=_token(checkpoint))

    def row(
        self,
        kind: str,
        t_ns: int,
        *,
        event: str | None = None,
        origin: MemberId | None = None,
        ticket: int | None = None,
        clock: str | None = None,
        age: int | None = None,
        bytes: int | None = None,
        reason: str | None = None,
        peer: str | None = None,
        order: str | None = None,
        token: str | None = None,
    ) -> None:
        """One row; a runtime writes `crash` and `fault` rows this way."""
        self._sink(
            Row(
                run=self._run,
                cluster=self._cluster,
                member=self._member,
                lseq=self._lseq,
                t_ns=t_ns,
                kind=kind,
                event=event,
                origin=origin,
                ticket=ticket,
                clock=clock,
                age=age,
                bytes=bytes,
                reason=reason,
                peer=peer,
                order=order,
                token=token,
            )
        )
        self._lseq += 1

    def _frame(
        self,
        kind: str,
        frame: Frame,
        t_ns: int,
        *,
        peer: MemberId | None = None,
        age: int | None = None,
        reason: str | None = None,
    ) -> None:
        size = len(frame.body) // frame.count if kind == "publish" else None
        prefix, owner = f"{frame.ticket}:{Incarnation.unpack(frame.inc)}:", frame.owner
        for seq in range(frame.first, frame.first + frame.count):
            clock = show_clock(frame.timestamp(seq)) if kind == "publish" else None
            self.row(
                kind,
                t_ns,
                event=f"{prefix}{seq}@{owner}",
                origin=owner,
                ticket=frame.ticket,
                clock=clock,
                age=age,
                bytes=size,
                reason=reason,
                peer=peer,
            )


def _token(checkpoint: bytes) -> str:
    return f"checkpoint {blake2b(checkpoint, digest_size=12).hexdigest()}"


def show_clock(entries: Iterable[Entry]) -> str:
    """`incarnation:seq` per ticket, `-` for none."""
    return " ".join("-" if e == NEVER else f"{Incarnation.unpack(e[0])}:{e[1]}" for e in entries)


def _range(wanted: tuple[int, int, int, int]) -> str:
    _, inc, first, last = wanted
    return f"{Incarnation.unpack(inc)}:{first}" + (f"-{last}" if last > first else "")
