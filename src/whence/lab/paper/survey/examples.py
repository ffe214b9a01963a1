"""SURVEY Ex1, Ex2 and Ex3 (Figs. 2, 4, 5, 6, 7), replayed by the mechanisms themselves and compared value for value.

The figures are drawings: the order in which messages arrive is taken from the text. Where text and figures disagree, we
assume:

* p4 gets m2 before m1 (Fig. 2, step 5), though step 3 of Ex1 has "all processes" deliver m1 at once;
* p1 delivers its own m4 when it multicasts it; step 7 mentions m4 after m3, which would contradict p1's clock
  [2,0,1,0];
* the five tables of Ex3 are columns of numbers in the PDF; they are reassembled here.

Processes are p1 .. p4 as in the paper, and 0 .. 3 internally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from whence.core.clock.cct import concurrent, precedes
from whence.core.order.survey.base import Mechanism, Message, Process
from whence.core.order.survey.first import FirstGeneration, sequence
from whence.core.order.survey.vector import (
    CompactMulticast,
    CompactStamp,
    Identifiers,
    IdStamp,
    VectorClock,
    VectorStamp,
)
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study
from whence.lab.stats import exact

N = 4
M1, M2, M3, M4 = (0, 1), (2, 1), (1, 1), (0, 2)
"""The ids of the messages of Ex1 and Ex2: m1 and m4 are p1's, m2 is p3's, m3 is p2's."""
NAME = {M1: "m1", M2: "m2", M3: "m3", M4: "m4"}

SCHEDULE = (
    ("p1", "multicast m1", (1, 0, 0, 0)),
    ("p2", "receive m1", (1, 0, 0, 0)),
    ("p3", "receive m1", (1, 0, 0, 0)),
    ("p3", "multicast m2", (1, 0, 1, 0)),
    ("p4", "receive m2", (0, 0, 0, 0)),  # blocked: m1 is not here yet
    ("p2", "receive m2", (1, 0, 1, 0)),
    ("p2", "multicast m3", (1, 1, 1, 0)),
    ("p1", "receive m3", (1, 0, 0, 0)),  # blocked: m2 is still in transit
    ("p1", "multicast m4", (2, 0, 0, 0)),
    ("p1", "receive m2", (2, 1, 1, 0)),
    ("p4", "receive m1", (1, 0, 1, 0)),
    ("p3", "receive m3", (1, 1, 1, 0)),
    ("p4", "receive m4", (2, 0, 1, 0)),
    ("p4", "receive m3", (2, 1, 1, 0)),
    ("p2", "receive m4", (2, 1, 1, 0)),
    ("p3", "receive m4", (2, 1, 1, 0)),
)
"""Ex1 (Fig. 2): who does what, in the order of the text, and its vector clock after that (Fig. 5). Ex2 is the same
under the first generation."""


@dataclass
class Replay:
    """What came of the schedule."""

    messages: dict[str, Message] = field(default_factory=dict)
    delivered: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """`(process, what it did, messages delivered by it)`, one entry per step of the schedule."""
    clocks: list[tuple[str, str, tuple[int, ...]]] = field(default_factory=list)
    """`(process, what it did, its vector clock after it)`, for vector clocks."""

    def order(self, process: str) -> tuple[str, ...]:
        """The messages in the order in which a process delivered them."""
        return tuple(m for p, _, some in self.delivered if p == process for m in some)


def replay(make: Callable[[int], Mechanism]) -> Replay:
    """Run the schedule of Ex1 under a mechanism."""
    processes = {f"p{p + 1}": Process(p, make(p)) for p in range(N)}
    out = Replay()
    for now, (who, step, _) in enumerate(SCHEDULE):
        process, (what, name) = processes[who], step.split()
        if what == "multicast":
            out.messages[name], found = process.multicast(name.encode(), now)
        else:
            found = process.receive(out.messages[name], now)
        out.delivered.append((who, step, tuple(NAME[m.id] for m in found)))
        if isinstance(process.mechanism, VectorClock):
            clock = process.mechanism.delivered
            out.clocks.append((who, step, tuple(clock.get(p, 0) for p in range(N))))
    return out


def vectors(replayed: Replay) -> dict[str, tuple[int, ...]]:
    """`VC_m` of each message."""
    found = {name: m.stamp.clock for name, m in replayed.messages.items() if isinstance(m.stamp, VectorStamp)}
    return {name: clock + (0,) * (N - len(clock)) for name, clock in found.items()}


def entries(replayed: Replay) -> dict[str, tuple[tuple[int, int], ...]]:
    """The compacted stamp of each message, with the paper's process numbers."""
    found = {name: m.stamp.entries for name, m in replayed.messages.items() if isinstance(m.stamp, CompactStamp)}
    return {name: tuple((p + 1, n) for p, n in some) for name, some in found.items()}


def relations(stamps: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """How the messages of Ex1 relate by their vectors, as SURVEY section 2 lists it: `->` or `||`."""
    pairs = [("m1", "m2"), ("m1", "m3"), ("m2", "m3"), ("m1", "m4"), ("m2", "m4"), ("m3", "m4")]
    sign = {f"{a} {b}": (stamps[a], stamps[b]) for a, b in pairs}
    return {k: "->" if precedes(a, b) else "||" if concurrent(a, b) else "?" for k, (a, b) in sign.items()}


# --- Ex3

Entries = tuple[tuple[int, int], ...]
"""`(process, value)`, ascending."""


class SkClock:
    """The compacted vector clock for unicast of Singhal and Kshemkalyani 92 (SURVEY 3.3), of process `me` of n.

    `VC[i]` counts the events (sends and deliveries) of process i. Each message carries only the entries that have
    changed since the last message to the same destination. Links must be FIFO: an omitted entry was sent before.
    """

    __slots__ = ("LS", "LU", "VC", "me")

    VC: list[int]
    """The vector clock."""
    LU: list[int]
    """Last update: `VC[me]` when this entry of `VC` was last changed here."""
    LS: list[int]
    """Last sent: `VC[me]` when a message was last sent to this process. The own entry is unused."""

    def __init__(self, me: int, processes: int) -> None:
        self.me = me
        self.VC = [0] * processes
        self.LU = [0] * processes
        self.LS = [0] * processes

    def send(self, to: int) -> Entries:
        """The event of sending to `to`. Returns the message's control information."""
        self._event()
        entries = tuple((k, n) for k, n in enumerate(self.VC) if k != to and self.LS[to] < self.LU[k])
        self.LS[to] = self.VC[self.me]
        return entries

    def deliver(self, entries: Entries) -> None:
        """The event of delivering a message with this control information."""
        self._event()
        for k, n in entries:
            if n > self.VC[k]:
                self.VC[k] = n
                self.LU[k] = self.VC[self.me]

    def _event(self) -> None:
        self.VC[self.me] += 1
        self.LU[self.me] = self.VC[self.me]


Table = tuple[tuple[int, int, int, int | None], ...]
"""Rows `(index, VC, LU, LS)` of p3; its own LS is a dash."""

EX3: tuple[tuple[str, Table], ...] = (
    ("start", ((1, 5, 17, 16), (2, 2, 10, 18), (3, 19, 19, None), (4, 3, 8, 15))),
    ("m1 to p2 {(3,20)}", ((1, 5, 17, 16), (2, 2, 10, 20), (3, 20, 20, None), (4, 3, 8, 15))),
    ("m2 of p1 {(1,10),(4,2)}", ((1, 10, 21, 16), (2, 2, 10, 20), (3, 21, 21, None), (4, 3, 8, 15))),
    ("m3 to p4 {(1,10),(3,22)}", ((1, 10, 21, 16), (2, 2, 10, 20), (3, 22, 22, None), (4, 3, 8, 22))),
    ("m4 to p2 {(1,10),(3,23)}", ((1, 10, 21, 16), (2, 2, 10, 23), (3, 23, 23, None), (4, 3, 8, 22))),
)
"""The five state tables of p3 in Ex3 (Fig. 6), as the paper has them, and the message before each with its stamp."""


def ex3() -> Iterator[tuple[str, Table]]:
    """Ex3 again: the state of p3 after each step, and the stamp it sent or delivered."""
    clock = SkClock(2, N)
    clock.VC[:], clock.LU[:], clock.LS[:] = [5, 2, 19, 3], [17, 10, 19, 8], [16, 18, 0, 15]
    yield "start", _table(clock)
    yield f"m1 to p2 {_show(clock.send(1))}", _table(clock)
    m2 = ((0, 10), (3, 2))
    clock.deliver(m2)
    yield f"m2 of p1 {_show(m2)}", _table(clock)
    yield f"m3 to p4 {_show(clock.send(3))}", _table(clock)
    yield f"m4 to p2 {_show(clock.send(1))}", _table(clock)


def _table(clock: SkClock) -> Table:
    rows = zip(clock.VC, clock.LU, clock.LS, strict=True)
    return tuple((k + 1, vc, lu, None if k == clock.me else ls) for k, (vc, lu, ls) in enumerate(rows))


def _show(some: tuple[tuple[int, int], ...]) -> str:
    return "{" + ",".join(f"({p + 1},{n})" for p, n in some) + "}"


# --- what the paper says, and what came out

EX1_VECTORS = {"m1": (1, 0, 0, 0), "m2": (1, 0, 1, 0), "m3": (1, 1, 1, 0), "m4": (2, 0, 0, 0)}
EX1_RELATIONS = {"m1 m2": "->", "m1 m3": "->", "m2 m3": "->", "m1 m4": "->", "m2 m4": "||", "m3 m4": "||"}
EX2_SEQUENCES = {"m1": ("m1",), "m2": ("m1", "m2"), "m3": ("m1", "m2", "m3"), "m4": ("m2", "m3", "m4")}
EX2_TOGETHER = (
    ("p4", "receive m2", ("m1", "m2")),
    ("p1", "receive m3", ("m2", "m3")),
    ("p4", "receive m4", ("m3", "m4")),
)
FIG7_ENTRIES = {"m1": ((1, 1),), "m2": ((1, 1), (3, 1)), "m3": ((1, 1), (2, 1), (3, 1)), "m4": ((1, 2),)}
PSYNC_IDS = {"m1": (), "m2": ("m1",), "m3": ("m2",), "m4": ("m1",)}


def comparisons() -> list[tuple[str, str, object, object]]:
    """All of Ex1, Ex2, Ex3 and Fig. 7: the statistic, what is compared, what the paper has, what came out."""
    vector, first = replay(VectorClock), replay(FirstGeneration)
    compact, ids = replay(CompactMulticast), replay(Identifiers)
    stamps = {name: m.stamp for name, m in ids.messages.items()}
    named = {k: tuple(NAME[i] for i in s.after) for k, s in stamps.items() if isinstance(s, IdStamp)}
    everybody = tuple(f"p{p + 1}" for p in range(N))
    found: list[tuple[str, str, object, object]] = [
        ("ex1-clocks", "Ex1, Fig. 5: the vector of each message", EX1_VECTORS, vectors(vector)),
        ("ex1-clocks", "Ex1, Fig. 5: clocks after each step", SCHEDULE, tuple(vector.clocks)),
        ("ex1-relations", "m2 || m4, m3 || m4, others in order", EX1_RELATIONS, relations(vectors(vector))),
        ("ex1-order", "p4 delivers m1, m2, m4, m3", ("m1", "m2", "m4", "m3"), vector.order("p4")),
        ("ex1-order", "p1 holds m3 until it has m2", ("m1", "m4", "m2", "m3"), vector.order("p1")),
        ("identifiers", "the same graph, by direct predecessors", PSYNC_IDS, named),
        ("identifiers", "delivered as under vector clocks", vector.delivered, ids.delivered),
        ("ex2", "Fig. 4: the sequence of each multicast", EX2_SEQUENCES, _sequences(first)),
        ("ex2", "what is delivered together", EX2_TOGETHER, tuple(s for s in first.delivered if len(s[2]) > 1)),
        (
            "ex2",
            "m1 -> m2 -> m3 -> m4 at every process",
            dict.fromkeys(everybody, ("m1", "m2", "m3", "m4")),
            {p: first.order(p) for p in everybody},
        ),
        ("fig7", "the compacted stamp of each message", FIG7_ENTRIES, entries(compact)),
        ("fig7", "delivered as under vector clocks", vector.delivered, compact.delivered),
    ]
    for (title, paper), (step, ours) in zip(EX3, ex3(), strict=True):
        found.append(("ex3", f"Fig. 6: state of p3 after {title}", (title, paper), (step, ours)))
    return found


def _sequences(replayed: Replay) -> dict[str, tuple[str, ...]]:
    return {name: tuple(NAME[i] for i in sequence(m)) for name, m in replayed.messages.items()}


def measure(options: RunOptions) -> list[Row]:
    """Replay all of it."""
    return [
        {"key": key, "text": text, "equal": paper == ours, "paper": str(paper), "ours": str(ours)}
        for key, text, paper, ours in comparisons()
    ]


def statistics(rows: list[Row]) -> Statistics:
    """0: as the paper has it; 1: not."""
    found: Statistics = {}
    for row in rows:
        found.setdefault(row["key"], []).append(exact(row["text"], float(not row["equal"])))
    return found


STUDY = Study(measure, statistics)
