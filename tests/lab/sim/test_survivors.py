"""Nothing that enough members hold is lost: copies, and recovery buffers that survive restarts, snapshots and leaving.
What died is counted one by one, and agreement is judged in every run."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lab.sim.runs import MS, Run, simulate
from tests.long import few
from whence.core.member import Member
from whence.core.order import layer
from whence.lab.sim.actions import Action, CoordinateAction, Crash, LeaveAction, Partition, PublishAction, StartAction
from whence.lab.sim.survivors import names

SMALL = """
members = {members}
absent = {absent}
duration = "12s"
settle = "20s"
[cluster]
tickets = 3
coordinators = 2
order = "reliable"
recovery = "Rk"
mode = "{mode}"
ring = "{ring}"
abandon = "10s"
"""


def small(
    *actions: Action,
    seed: int = 1,
    members: int = 4,
    absent: str = "[]",
    mode: str = "rounds",
    ring: str = "council",
    **k: Any,
) -> Run:
    text = SMALL.format(members=members, absent=absent, mode=mode, ring=ring)
    return simulate(text, seed, sorted(actions, key=lambda a: a.at), **k)


def acknowledged(run: Run) -> list[str]:
    return run.world.checks._acknowledged[0]


def assert_all_have(run: Run, events: list[str]) -> None:
    living = [host.instances[0] for host in run.world.hosts.values() if host.up]
    for instance in living:
        seen = set(names(instance.app.seen))
        assert not [event for event in events if event not in seen], instance.id


# n1 publishes while only n2 hears it; the others hear of it much later, or never.
ALONE = Partition(at=5900 * MS, who=("n0", "n3"), lasts=5000 * MS)
WORD = PublishAction(at=6000 * MS, who="n1")
GONE = Crash(at=7000 * MS, who="n1")
"""For good, and its disk with it."""


def test_who_restarts_with_its_disk_can_still_give_what_it_had() -> None:
    run = small(ALONE, WORD, GONE, Crash(at=7500 * MS, who="n2", lasts=500 * MS, disk=True)).clean()
    (event,) = (row.event for row in run.published())
    assert_all_have(run, [event or ""])
    assert run.world.tally.died == 0


# n2 is the last that holds the word when it leaves, one moment after the cut has healed. (With a council it would wait
# until it is replaced as a voter, and others would ask it for the word meanwhile.)
LEAVING = [
    Partition(at=5900 * MS, who=("n0", "n3"), lasts=900 * MS),
    WORD,
    Crash(at=6400 * MS, who="n1"),
    LeaveAction(at=6801 * MS, who="n2"),
]


def test_who_leaves_hands_its_buffer_over() -> None:
    run = small(*LEAVING, ring="neighbours").clean()
    (event,) = (row.event for row in run.published())
    assert_all_have(run, [event or ""])
    assert run.world.tally.died == 0


def test_a_joiner_can_give_what_came_with_its_snapshot() -> None:
    """n3 joins through n2, and has the word in its state; n1 and n2 are lost for good before n0 can hear of it."""
    cut = Partition(at=5900 * MS, who=("n0",), lasts=4000 * MS)
    run = small(
        cut, WORD, GONE, StartAction(at=7100 * MS, who="n3"), Crash(at=9000 * MS, who="n2"), absent='["n3"]'
    ).clean()
    event = run.published()[0].event
    assert_all_have(run, [event or ""])
    assert run.world.tally.died == 0


def test_without_surviving_buffers_each_of_them_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks can fail: the same runs with buffers that die with their member."""

    class Forgetful(Member):
        def checkpoint(self, kept: bool = True) -> bytes:
            return super().checkpoint(kept=False)

    monkeypatch.setattr(layer.Ordering, "hand_over", lambda self, to: [])
    restart = [ALONE, WORD, GONE, Crash(at=7500 * MS, who="n2", lasts=500 * MS, disk=True)]
    violation = small(*restart, make=Forgetful).violation
    assert violation is not None and violation.kind == "agreement"
    cut = Partition(at=5900 * MS, who=("n0",), lasts=4000 * MS)
    joiner = [cut, WORD, GONE, StartAction(at=7100 * MS, who="n3"), Crash(at=9000 * MS, who="n2")]
    violation = small(*joiner, absent='["n3"]').violation
    assert violation is not None and violation.kind == "agreement"
    assert small(*LEAVING, ring="neighbours").clean().world.tally.died == 1, "nobody is left to disagree"


def test_what_died_with_its_publisher_is_counted_and_agreement_is_judged_all_the_same() -> None:
    """Nobody hears two words of n1 before it is lost for good; n0's own words are not excused by that."""
    cut = Partition(at=5900 * MS, who=("n1",), lasts=1500 * MS)
    words = [
        PublishAction(at=5920 * MS, who="n1"),
        PublishAction(at=5930 * MS, who="n1"),
        PublishAction(at=8000 * MS, who="n0"),
    ]
    run = small(cut, *words, Crash(at=7000 * MS, who="n1")).clean()
    assert run.world.tally.died == 2
    assert_all_have(run, [row.event or "" for row in run.published() if row.member.startswith("n0")])


@st.composite
def trouble(draw: st.DrawFn) -> tuple[list[Action], int]:
    """Words that want two copies; cuts that heal; and one crash at any time, without a disk and for good."""
    words: list[Action] = [
        PublishAction(at=draw(st.integers(5000, 9000)) * MS, who=draw(st.sampled_from(["n0", "n1"])), copies=2)
        for _ in range(draw(st.integers(1, 6)))
    ]
    cuts: list[Action] = [
        Partition(at=draw(st.integers(5000, 8000)) * MS, who=(who,), lasts=draw(st.integers(100, 1500)) * MS)
        for who in draw(st.lists(st.sampled_from(["n0", "n1", "n2"]), max_size=2, unique=True))
    ]
    crash = Crash(at=draw(st.integers(5000, 10000)) * MS, who=draw(st.sampled_from(["n0", "n1", "n2"])))
    return [*words, *cuts, crash], draw(st.integers(1, 1000))


@settings(max_examples=10)
@given(trouble())
def test_two_copies_survive_any_single_crash_without_a_disk(case: tuple[list[Action], int]) -> None:
    actions, seed = case
    run = small(*actions, seed=seed, members=3).clean()
    assert_all_have(run, acknowledged(run))
    assert run.world.tally.acknowledged_and_died == 0


@settings(max_examples=8)
@given(trouble(), st.integers(0, 3000), st.integers(200, 3000))
def test_two_copies_survive_a_crash_of_all_with_disks(case: tuple[list[Action], int], after: int, lasts: int) -> None:
    actions, seed = case
    at = (7000 + after) * MS
    everybody = [Crash(at=at + i, who=f"n{i}", lasts=(lasts + 100 * i) * MS, disk=True) for i in range(3)]
    words = [a for a in actions if not isinstance(a, Crash)]
    run = small(*words, *everybody, seed=seed, members=3).clean()
    assert_all_have(run, acknowledged(run))
    assert run.world.tally.acknowledged_and_died == 0


def test_the_schedules_are_hard_enough() -> None:
    """With one copy only, a single crash does lose what its publisher had been told is published."""
    rng, lost = random.Random(5), 0
    for seed in range(5):
        at = rng.randint(6000, 7000)
        cut = Partition(at=(at - 20) * MS, who=("n0",), lasts=2000 * MS)
        crash = Crash(at=(at + 300) * MS, who="n0")
        run = small(cut, PublishAction(at=at * MS, who="n0"), crash, seed=seed, members=3).clean()
        lost += run.world.tally.died
    assert lost


def test_copies_are_acknowledged_in_the_simulator_and_too_few_are_counted() -> None:
    cut = Partition(at=5900 * MS, who=("n0",), lasts=10_000 * MS)
    words = [PublishAction(at=5000 * MS, who="n0", copies=3), PublishAction(at=5920 * MS, who="n0", copies=2)]
    run = small(cut, *words, members=3).clean()
    assert acknowledged(run) == [run.published()[0].event]
    assert run.world.tally.too_few_copies == 1


def reassigned(seed: int) -> Run:
    """n1 publishes while only one other member hears it, and crashes at some moment; its ticket goes to somebody who
    lacks its last events, and others publish on."""
    r = random.Random(seed)
    at = r.randint(5500, 6500)
    side = ("n1", r.choice(["n2", "n3", "n4"]))
    actions: list[Action] = [Partition(at=at * MS, who=side, lasts=r.randint(500, 9000) * MS)]
    actions += [PublishAction(at=(at + r.randint(1, 1000)) * MS, who="n1", copies=2) for _ in range(r.randint(1, 5))]
    actions.append(Crash(at=(at + r.randint(1, 1500)) * MS, who="n1"))
    for _ in range(20):
        who, copies = r.choice(["n0", "n2", "n3", "n4"]), r.choice([1, 2])
        actions.append(PublishAction(at=r.randint(5000, 15500) * MS, who=who, copies=copies))
    for _ in range(3):
        actions.append(CoordinateAction(at=r.randint(6000, 12000) * MS, who=r.choice(["n2", "n3", "n4"])))
    text = SMALL.replace('"reliable"', "{{ causal = 3, reliable = 2 }}").format(
        members=5, absent="[]", mode="eager", ring="council"
    )
    return simulate(text, seed, sorted(actions, key=lambda a: a.at))


@pytest.mark.parametrize("seed", few([9, 11, *range(40)], 2))
def test_what_is_acknowledged_reaches_causal_members_when_the_ticket_has_another_owner(seed: int) -> None:
    run = reassigned(seed).clean()
    assert run.world.tally.acknowledged_and_died == 0
