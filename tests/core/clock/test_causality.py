"""Several members with a `CctClock` each: do the timestamps keep the true causal order?

The truth is kept apart from the clocks: for every frame the set of all frames in its causal past, gathered from who
delivered what before publishing. Members that skip and members that do not are in one cluster. Ticket owners change
without a word to anybody (a crash), so tenures close over less than what was published: orphans.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from whence.core.clock import CctClock, Frame

TICKETS = 2
MEMBERS = 4


class Member:
    def __init__(self, number: int, exact: bool) -> None:
        self.name = f"m{number}#0"
        self.clock = CctClock(TICKETS, exact)
        self.got: dict[tuple[int, int, int], Frame] = {}
        self.past: set[tuple[int, int, int]] = set()  # of all it has delivered, what it skipped included
        self.skipped = False


class World:
    def __init__(self, exact: list[bool]) -> None:
        self.members = [Member(i, e) for i, e in enumerate(exact)]
        self.owner = [0] * TICKETS
        self.inc = [1] * TICKETS
        self.last = [0] * TICKETS
        self.frames: list[Frame] = []
        self.past: dict[tuple[int, int, int], set[tuple[int, int, int]]] = {}

    def take_over(self, ticket: int, member: int) -> None:
        """The old owner is gone; the new one continues from what it happens to know."""
        self.owner[ticket], self.inc[ticket], self.last[ticket] = member, self.inc[ticket] + 1, 0

    def publish(self, ticket: int, count: int) -> None:
        p = self.members[self.owner[ticket]]
        if p.clock.T[ticket] > (self.inc[ticket], self.last[ticket]):
            return
        orphans = tuple((t, i, s) for (t, i), s in p.clock.orphans.items())
        frame = Frame.of(
            ticket, self.inc[ticket], self.last[ticket] + 1, p.name, tuple(p.clock.T), [b""] * count, orphans
        )
        self.last[ticket] = frame.last
        self.frames.append(frame)
        self.past[frame.key] = p.past | set(p.got)
        self.deliver(p, frame)

    def deliver(self, q: Member, frame: Frame) -> None:
        key, past = frame.key, self.past[frame.key]
        assert key not in q.got, "delivered twice"
        assert key not in q.past, f"{q.name} delivers {key} after something that it precedes"
        if q.clock.exact and not q.skipped:
            assert past <= set(q.got), f"{q.name} delivers {key} without {past - set(q.got)}"
        q.clock.advance(frame.ticket, frame.inc, frame.last, frame.deps[frame.ticket])
        q.got[key] = frame
        q.past |= past

    def receive(self, q: Member, frame: Frame) -> bool:
        if q.clock.has(frame.ticket, frame.inc, frame.first):
            if q.clock.exact and not q.skipped:
                assert frame.key in q.got
            return False
        ready = q.clock.ready(frame.deps, frame.orphans)
        assert ready is (q.clock.missing(frame.deps, frame.orphans) == [])
        if ready:
            self.deliver(q, frame)
        return ready

    def force(self, q: Member, frame: Frame) -> None:
        """time_to_recover is over: skip what is missing, then deliver."""
        if not q.clock.has(frame.ticket, frame.inc, frame.first) and not self.receive(q, frame):
            q.skipped = True
            q.clock.give_up(frame.deps, frame.orphans)
            assert q.clock.ready(frame.deps, frame.orphans)
            self.deliver(q, frame)

    def run(self, schedule) -> None:
        for what, a, b in schedule:
            match what:
                case "take over":
                    self.take_over(a % TICKETS, b % MEMBERS)
                case "publish":
                    self.publish(a % TICKETS, 1 + b % 3)
                case "receive" if self.frames:
                    self.receive(self.members[a % MEMBERS], self.frames[-1 - b % len(self.frames)])
                case "force" if self.frames:
                    self.force(self.members[a % MEMBERS], self.frames[-1 - b % len(self.frames)])

    def settle(self) -> None:
        """Everybody receives everything, until nothing moves."""
        while sum(self.receive(q, f) for q in self.members for f in self.frames):
            pass


def schedules(*kinds: str):
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 7), st.integers(0, 12)), min_size=12, max_size=80)


@settings(max_examples=200)
@given(
    st.lists(st.booleans(), min_size=MEMBERS, max_size=MEMBERS),
    schedules("publish", "publish", "receive", "receive", "receive", "take over"),
)
def test_exact_and_skipping_clocks_share_a_cluster(exact, schedule):
    """Nobody gives anything up here: what a skipping clock loses are orphans alone, and it never inverts."""
    world = World(exact)
    world.run(schedule)
    world.settle()
    for q in world.members:
        lost = {f.key for f in world.frames} - set(q.got)
        assert not (lost and q.clock.exact)
        assert all(inc < q.clock.T[ticket][0] for ticket, inc, _ in lost)


def test_a_skip_does_not_forget_an_orphan():
    """b takes ticket 0 over without x2, which is an orphan. c has it, and skips the first frame of tenure 2."""
    world = World([True, True, False, True])
    _, b, c, d = world.members
    world.publish(0, 1)
    world.receive(b, world.frames[0])
    world.publish(0, 1)
    x1, x2 = world.frames
    world.take_over(0, 1)
    world.publish(0, 1)
    world.publish(0, 1)
    y1, y2 = world.frames[2:]
    assert world.receive(c, x1) and world.receive(c, x2)
    world.force(c, y2)
    world.owner[1] = 2
    world.publish(1, 1)
    z = world.frames[4]
    assert world.receive(d, x1) and world.receive(d, y1) and world.receive(d, y2)
    assert not world.receive(d, z), "d lacks the orphan, which is in the past of z"
    assert world.receive(d, x2) and world.receive(d, z)


def test_an_exact_clock_that_gives_up_settles_what_came_before():
    """c is in tenure 3 and gives up an event of tenure 2: what that closed over must not come after it."""
    world = World([True] * MEMBERS)
    c = world.members[2]
    world.publish(0, 1)
    world.take_over(0, 0)
    world.publish(0, 1)
    x, y = world.frames
    world.take_over(0, 2)
    world.publish(0, 1)
    world.publish(1, 1)
    z = world.frames[3]
    assert y.deps[0] == (1, 1) and z.deps[0] == (2, 1) and c.clock.T[0] == (3, 1)
    world.force(c, z)
    world.receive(c, x)


def test_skippers_do_not_make_others_invert():
    """1,000 schedules in which members that may skip do so, beside members that may not."""
    for seed in range(1000):
        rng = random.Random(seed)
        world = World([rng.random() < 0.5 for _ in range(MEMBERS)])
        kinds = ("publish", "publish", "receive", "receive", "receive", "force", "take over")
        depth = rng.choice((1, 3, 12))
        schedule = [
            (rng.choice(kinds), rng.randrange(8), rng.randrange(depth)) for _ in range(rng.choice((20, 60, 120)))
        ]
        world.run([(w, a, b) for w, a, b in schedule if w != "force" or not world.members[a % MEMBERS].clock.exact])
        world.settle()
