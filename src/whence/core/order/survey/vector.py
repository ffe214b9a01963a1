"""Vector clocks (Birman, Schiper and Stephenson 91; SURVEY 3.2), and the two ways to compact them (SURVEY 3.3).

Deliver `m` of `i` when `VC_m[i] = VC[i] + 1` and `VC_m[k] <= VC[k]` for all other k. A compacted stamp leaves entries
out: those that have not changed since a message that the receiver must deliver first anyhow. What is left out was
therefore checked when that message was delivered, and the rule is the same with fewer entries.

Departs from the SURVEY, whose slots are set to zero when the membership changes: here they go on counting, because
`(sender, seq)` names a message for recovery too. A slot of a process that left is zero in stamps from then on (rule 6).
"""

from __future__ import annotations

from typing import ClassVar, Self

from whence.core.order.survey.base import Mechanism, MechanismState, Message, Stamp, Wait
from whence.core.order.survey.counts import (
    Counts,
    Id,
    ProcessId,
    Renumber,
    dense,
    gaps,
    renumbered,
    renumbered_ids,
    sparse,
)


class VectorStamp(Stamp, frozen=True, array_like=True, gc=False, tag=3):
    """`VC_m`, by process number."""

    clock: tuple[int, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(renumbered(self.clock, to))


class CompactStamp(Stamp, frozen=True, array_like=True, gc=False, tag=4):
    """The entries of `VC_m` that the receivers may not know: `(process, count)`, ascending."""

    entries: tuple[Id, ...]

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(renumbered_ids(self.entries, to))


class VectorState(MechanismState, frozen=True, array_like=True, gc=False, tag=3):
    """`VC` of the member that gave the state, and which chains are broken there."""

    clock: tuple[int, ...]
    broken: tuple[Id, ...] = ()

    def renumbered(self, to: Renumber) -> Self:
        return type(self)(renumbered(self.clock, to), renumbered_ids(self.broken, to))


class VectorClock(Mechanism):
    """The whole vector in every message."""

    name = "vector"
    stamp_type: ClassVar[type[Stamp]] = VectorStamp
    state_type = VectorState

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self.clock: Counts = {}
        """`VC`: messages delivered of each process."""

    def needed(self, message: Message) -> list[Id]:
        """What must be delivered before the message."""
        assert isinstance(message.stamp, VectorStamp)
        own = (message.sender, message.seq - 1)
        return [own, *((p, n) for p, n in enumerate(message.stamp.clock) if p != message.sender)]

    def stamp(self, seq: int, now: int) -> Stamp:
        return VectorStamp(dense({**self.clock, self.me: seq}))

    def obsolete(self, message: Message, now: int) -> str | None:
        return "duplicate" if message.seq <= self.clock.get(message.sender, 0) else None

    def wait(self, message: Message, now: int) -> Wait | None:
        found = gaps(self.clock, self.needed(message))
        return Wait(found) if found else None

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.clock[message.sender] = message.seq
        return [message]

    def skip(self, message: Message, now: int) -> None:
        for p, _, last in gaps(self.clock, self.needed(message)):
            self.clock[p] = last

    def leave(self, process: ProcessId) -> None:
        self.clock.pop(process, None)

    def admit(self, joiner: ProcessId) -> VectorState:
        return VectorState(dense(self.clock))

    def install(self, state: MechanismState) -> None:
        assert isinstance(state, VectorState)
        self.clock = sparse(state.clock)


class CompactMulticast(VectorClock):
    """Only the entries that have changed since the last own multicast (BSS 91; SURVEY Fig. 7)."""

    name = "compact-multicast"
    stamp_type = CompactStamp
    chained = True

    def __init__(self, me: ProcessId) -> None:
        super().__init__(me)
        self.last: Counts = {}
        """`LM`: the clock at the last own multicast."""
        self.broken: Counts = {}
        """Process: the last message given up, if nothing of it was delivered since."""

    def anchor(self) -> None:
        self.last = {}

    def obsolete(self, message: Message, now: int) -> str | None:
        if not message.anchor and self.broken.get(message.sender) == message.seq - 1:
            return "broken"
        return super().obsolete(message, now)

    def forget(self, message: Message) -> None:
        self.clock[message.sender] = self.broken[message.sender] = message.seq

    def skip(self, message: Message, now: int) -> None:
        self.broken.update((p, last) for p, _, last in gaps(self.clock, self.needed(message)))
        super().skip(message, now)

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.broken.pop(message.sender, None)
        return super().deliver(message, now)

    def admit(self, joiner: ProcessId) -> VectorState:
        return VectorState(dense(self.clock), tuple(sorted(self.broken.items())))

    def install(self, state: MechanismState) -> None:
        super().install(state)
        assert isinstance(state, VectorState)
        self.broken = dict(state.broken)

    def needed(self, message: Message) -> list[Id]:
        assert isinstance(message.stamp, CompactStamp)
        own = (message.sender, message.seq - 1)
        return [own, *(entry for entry in message.stamp.entries if entry[0] != message.sender)]

    def stamp(self, seq: int, now: int) -> Stamp:
        clock = {**self.clock, self.me: seq}
        changed = tuple((p, n) for p, n in sorted(clock.items()) if n > self.last.get(p, 0))
        self.last = clock
        return CompactStamp(changed)


class CompactUnicast(CompactMulticast):
    """Only the entries that have changed since the last message to the same destination: `LU` and `LS` of Singhal and
    Kshemkalyani 92, for a multicast, which has to serve all its destinations with one stamp.

    `tick` is the process's local time (one per send and per delivery, `VC[i]` of SURVEY Ex3; see `SkClock` for the
    clock as published). Against `CompactMulticast` it costs a vector more and gains that a destination to
    which nothing was sent yet is told everything, whatever it started from.
    """

    name = "compact-unicast"

    def __init__(self, me: ProcessId, members: tuple[ProcessId, ...] = ()) -> None:
        super().__init__(me)
        self.tick = 0
        self.lu: dict[ProcessId, int] = {}
        self.ls: dict[ProcessId, int] = {p: 0 for p in members if p != me}
        self._full = False

    def anchor(self) -> None:
        self._full = True

    def stamp(self, seq: int, now: int) -> Stamp:
        self.tick += 1
        clock = {**self.clock, self.me: seq}
        self.lu[self.me] = self.tick
        since = -1 if self._full else min(self.ls.values(), default=0)
        self._full = False
        self.ls = dict.fromkeys(self.ls, self.tick)
        return CompactStamp(tuple((p, n) for p, n in sorted(clock.items()) if since < self.lu.get(p, 0)))

    def deliver(self, message: Message, now: int) -> list[Message]:
        self.tick += 1
        if message.sender != self.me:
            self.lu[message.sender] = self.tick
        return super().deliver(message, now)

    def skip(self, message: Message, now: int) -> None:
        self.lu.update((p, self.tick + 1) for p, _, _ in gaps(self.clock, self.needed(message)))
        super().skip(message, now)

    def join(self, process: ProcessId) -> None:
        if process != self.me:
            self.ls.setdefault(process, 0)

    def leave(self, process: ProcessId) -> None:
        super().leave(process)
        self.lu.pop(process, None)
        self.ls.pop(process, None)

    def install(self, state: MechanismState) -> None:
        super().install(state)
        self.tick = 1
        self.lu = dict.fromkeys(self.clock, 1)  # all of it is news to everybody
        self.ls = dict.fromkeys(self.ls, 0)
