"""`whence paper ccc11/ring`: the published cluster management in random runs, and ours."""

from __future__ import annotations

import pytest

from whence.core.ring.neighbours import Attempt, Exclusion
from whence.lab.paper.ccc11 import ring
from whence.lab.paper.ccc11.published import Basic, RingStep, Tolerant, basic_walks, succeeding
from whence.lab.paper.claims import judged

TWO_OWNERS = 137
"""A seed of `chaos`."""
SAVED = 11
"""A seed of `walks`: an exclusion has a quorum of one list, and not of another."""
PARTS = ("lemma 4.1", "basic", "premise", "calm", "cut", "ours", "ours, joins")
KEYS = ("bad", "conflicts", "strictly", "chain", "two owners", "excluded", "late", "violations", "lost", "outvoted")


def test_coordinated_sets() -> None:
    assert succeeding(8, 4, 1) == [4, 3, 2] and succeeding(8, 1, 6) == [1, 0, 7]
    assert len(succeeding(8, 3, 3)) == 8


def test_a_ticket_is_granted_while_its_leaver_still_has_it() -> None:
    """Algorithm 1 with its prose: ACKCLEAVE is under way, and the predecessor already serves the next request."""
    walk = next(Basic(8, 6, seed) for seed in range(100) if basic_walks(seed, 1)["conflicts"])
    while not walk.conflicts(leavers=True):
        assert walk.step()
    owned = [p.ticket for p in walk.of.values() if p.state in ("coordinator", "leaving")]
    [twice] = {ticket for ticket in owned if owned.count(ticket) == 2}
    assert {p.state for p in walk.of.values() if p.ticket == twice} == {"coordinator", "leaving"}
    assert "ACKCLEAVE" in {message[0] for queue in walk.links.values() for message in queue}


def test_without_joins_and_faults_the_published_ring_stands() -> None:
    """So the model itself does not break it: nobody is excluded, nobody gives up."""
    found = Tolerant(ring.TICKETS, k=1, grace=0)
    found.settled({"a": (13, 0.2), "p": (8, 0.7), "z": (6, 0.1), "q": (3, 0.4), "b": (0, 0.9)})
    found.run(20)
    assert {step.kind for step in found.steps} == {"send", "own"}


def test_one_cut_link_gives_a_ticket_two_owners() -> None:
    """In a run that nobody arranged; without the cut link the same run keeps its tickets apart."""
    assert ring.two_owners(ring.one_run(TWO_OWNERS, cut=True, grace=2))
    calm = ring.one_run(TWO_OWNERS, cut=False, grace=10**6)
    assert not ring.two_owners(calm) and not [step for step in calm.steps if step.kind in ("exclude", "out")]


def test_a_crashed_owner_is_excluded_and_its_tickets_are_free_again() -> None:
    found = Tolerant(ring.TICKETS, k=1, grace=0)
    found.settled({"a": (13, 0.2), "p": (8, 0.7), "z": (6, 0.1), "q": (3, 0.4), "b": (0, 0.9)})
    found.crash("z")
    found.run(10)
    assert [(s.who, s.what) for s in found.steps if s.kind == "excluded"] == [("p", "z")]
    assert [s.who for s in found.steps if s.kind == "free"] == ["p"] and not ring.late(found)


def test_an_excluded_process_that_stays() -> None:
    found = Tolerant(8, k=1, grace=0)
    found.steps = [RingStep(1.0, "excluded", "p", "q", "y z", -1), RingStep(2.9, "out", "y", "", "", -1)]
    assert ring.late(found)  # z never goes
    found.steps.append(RingStep(3.9, "out", "z", "", "", -1))
    assert not ring.late(found)


def test_our_ring_comes_to_the_dangerous_state_and_rule_13_saves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a quorum of any list instead of all, the same runs break an invariant, so claims change."""
    found = ring.walks([SAVED], 0.5, 0.3)
    assert found["outvoted"] > 0 and found["violations"] == 0
    decide = Exclusion.decide

    def of_any(self: Exclusion, attempt: Attempt) -> None:
        lists = attempt.lists
        for R in lists:
            if self.underway.attempt is attempt:
                attempt.lists = (R,)
                decide(self, attempt)
        attempt.lists = lists

    monkeypatch.setattr(Exclusion, "decide", of_any)
    broken = ring.walks([SAVED], 0.5, 0.3)
    assert broken["violations"] > 0
    rows = [{"part": part, "what": "", **dict.fromkeys(KEYS, 0.0)} for part in PARTS]
    rows.append({"part": "ours, cuts", "what": "", **broken})
    failed = {j.key for j in judged("ccc11/ring", ring.statistics(rows)) if j.status == "fails"}
    assert failed == {"ours", "corollary-4.1-ours", "outvoted"}
