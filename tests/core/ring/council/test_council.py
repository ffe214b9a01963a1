"""The council's parts one by one: quorums, the voter, its memory, founding, leaving."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from tests.core.ring.council.chaos import chaos
from tests.core.ring.council.races import RACES
from tests.core.ring.council.survival import IMPOSSIBLE, SITUATIONS
from tests.core.ring.council.world import CouncilWorld, form, settings
from tests.core.ring.world import ROUND
from tests.long import few
from whence.core.clock import Incarnation, Send
from whence.core.ring import CouncilRing, State
from whence.core.ring.base import told_epoch
from whence.core.ring.context import Memory, Rejected, Remember, RingOutput
from whence.core.ring.council import merged, quorum
from whence.core.ring.messages import (
    Agree,
    Begin,
    Claim,
    Council,
    Holder,
    Known,
    Ledger,
    Read,
    Seats,
    Sit,
    Tenure,
    TicketRow,
    Vacate,
    Volunteer,
    Voter,
    Vouch,
)
from whence.lab.sim.invariants import council_lives

LEASE = settings().on_any_clock(settings().lease_ns)
INC = Incarnation(1, 0, 1).packed


def voter(memory: Memory | None = None) -> CouncilRing:
    """A council of one, which its founder has begun; it has ticket 0."""
    ring = CouncilRing("v#1" if memory is None else "v#2", settings(), random.Random(1), memory, disk=True)
    ring.start(0)
    if memory is None:
        ring.found(0, 1)
        ring.wake(settings().quarantine_ns)
        assert ring.state is State.OWNER
    return ring


def sent(outputs: list[RingOutput], kind: type) -> list[object]:
    return [o.message for o in outputs if isinstance(o, Send) and isinstance(o.message, kind)]


# --- C1 ---


def outside(w: CouncilWorld) -> str:
    """A member that is no voter."""
    voters = [voter.member for voter in w.newest()]
    return next(member for member in w.lives.values() if member not in voters)


def test_one_lie_about_the_council_stops_nobody() -> None:
    """A member that is no voter tells everybody, once a round, of a council that does not exist."""
    w = form(3, 3, readers=2, k=1)
    number = w.ring(w.lives["p0"]).councils.now.number
    liar = outside(w)
    for lie in range(6):
        phantom = Council(number + 1 + lie, (Voter("nobody#1", True),), ())
        for member in [m for m in w.lives.values() if m != liar]:
            w.act(member, lambda ring, now, c=phantom: ring.receive(liar, Known(c), now))  # type: ignore[misc]
        w.run(1)
        assert len(w.owners()) == 3
    assert {w.ring(w.lives[name]).councils.now.number for name in ("p0", "p1", "p2")} == {number}


def test_whoever_was_fooled_before_it_knew_better_finds_the_council_again() -> None:
    w = form(4, 3, readers=1, k=1)
    reader = w.ring(outside(w))
    known = reader.councils.now
    reader.councils.now, reader.councils.heard_at = Council(known.number + 9, (Voter("nobody#1", True),), ()), None
    w.run(12)
    assert reader.councils.now == known


def test_a_member_whose_voters_are_all_gone_believes_others() -> None:
    w = form(5, 3, readers=1, k=1)
    reader = w.ring(outside(w))
    known = reader.councils.now
    reader.councils.now = stale = Council(known.number - 1, (Voter("gone#1", False),), ())
    w.councils[stale.number] = stale.voters
    w.run(12)
    assert reader.councils.now.voters == tuple(w.newest())


@pytest.mark.parametrize("size", range(1, 8))
def test_two_quorums_share_a_voter(size: int) -> None:
    voters = [Voter(f"v{i}#1", False) for i in range(size)]
    everybody = [v.member for v in voters]
    subsets = [set(s) for n in range(size + 1) for s in itertools.combinations(everybody, n)]
    quorums = [s for s in subsets if quorum(voters, s)]
    assert all(a & b for a, b in itertools.combinations(quorums, 2))
    assert all(quorum(voters, s) for s in subsets if 2 * len(s) > size)
    assert not quorum(voters, set()) and not quorum((), set())


# --- C3, C4, C12: the voter ---


def test_a_new_seat_is_remembered_and_a_renewal_is_not() -> None:
    ring, now = voter(), settings().quarantine_ns
    first = ring.receive("a#1", Sit(1, 7, Tenure(3, INC), 0), now)
    assert sent(first, Vouch) == [Vouch(1, 7, "v#1")]
    assert any(isinstance(o, Remember) for o in first)
    again = ring.receive("a#1", Sit(1, 8, Tenure(3, INC), 5), now + ROUND)
    assert sent(again, Vouch) == [Vouch(1, 8, "v#1")]
    assert not any(isinstance(o, Remember) for o in again)


def test_a_voter_vouches_for_one_seat_at_a_time() -> None:
    ring, now = voter(), settings().quarantine_ns
    ring.receive("a#1", Sit(1, 7, Tenure(3, INC), 0), now)
    newer = Sit(1, 9, Tenure(3, INC + 1), 0)
    assert not sent(ring.receive("b#1", newer, now + LEASE - 1), Vouch)
    assert sent(ring.receive("b#1", newer, now + LEASE), Vouch)
    late = now + 3 * LEASE
    assert not sent(ring.receive("a#1", Sit(1, 8, Tenure(3, INC), 0), late), Vouch)  # an older incarnation
    assert not sent(ring.receive("c#1", Sit(1, 8, Tenure(3, INC + 1), 0), late), Vouch)  # one in two hands


def test_a_claim_is_agreed_to_when_nobody_may_own() -> None:
    ring, now = voter(), settings().quarantine_ns
    ring.receive("a#1", Sit(1, 7, Tenure(3, INC), 0), now)
    era = (1 << 24) + 1
    assert not sent(ring.receive("b#1", Claim(1, 1, era, (2, 3)), now + LEASE - 1), Agree)
    assert sent(ring.receive("b#1", Claim(1, 1, era, (2, 3)), now + LEASE), Agree)
    assert not sent(ring.receive("c#1", Claim(1, 1, era, (5,)), now + LEASE), Agree)  # an era is claimed once
    assert not sent(ring.receive("a#1", Sit(1, 8, Tenure(3, INC), 0), now + 2 * LEASE), Vouch)  # below the floor


def test_a_seat_that_is_vacated_is_free_at_once() -> None:
    ring, now = voter(), settings().quarantine_ns
    ring.receive("a#1", Sit(1, 7, Tenure(3, INC), 0), now)
    ring.receive("b#1", Vacate(Tenure(3, INC), 4), now)  # not its seat
    (seats,) = sent(ring.receive("b#1", Read(1, 1), now), Seats)
    assert isinstance(seats, Seats) and Holder("a#1", 3, INC) in seats.table.seats
    ring.receive("a#1", Vacate(Tenure(3, INC), 4), now)
    (seats,) = sent(ring.receive("b#1", Read(1, 2), now), Seats)
    assert isinstance(seats, Seats) and all(s.ticket != 3 for s in seats.table.seats)
    assert next(r for r in seats.table.rows if r.ticket == 3).last == (INC, 4)
    assert not sent(ring.receive("a#1", Sit(1, 8, Tenure(3, INC), 0), now), Vouch)


def test_who_is_behind_is_told_the_newest_council() -> None:
    ring, now = voter(), settings().quarantine_ns
    for old in (Sit(0, 7, Tenure(3, INC), 0), Read(0, 7)):
        assert sent(ring.receive("a#1", old, now), Known) == [Known(Council(1, (Voter("v#1", True),), ()))]


def test_a_voter_that_has_retired_begins_no_old_council_again() -> None:
    """It would vouch in it for owners that a later council has let go."""
    ring, voters = CouncilRing("v#1", settings(), random.Random(1)), tuple(Voter(f"{name}#1", False) for name in "vab")
    ring.start(0)
    later = Council(9, voters[1:], voters)
    ring.receive("a#1", Begin(Council(7, voters, voters), Ledger(0, (), ())), LEASE)
    assert ring.voting.book is not None and ring.voting.book.number == 7
    ring.receive("a#1", Known(later), LEASE)
    assert ring.voting.book is None
    ring.receive("a#1", Begin(Council(7, voters, voters), Ledger(0, (), ())), LEASE)
    assert ring.voting.book is None and ring.councils.now == later


def test_tables_are_merged_by_the_highest_of_each() -> None:
    a = Ledger(5, (Holder("a#1", 1, 7),), (TicketRow(1, "a#1", 7, 2, (7, 3)), TicketRow(2, "", 0, 9, (0, 0))))
    b = Ledger(4, (Holder("b#1", 1, 8),), (TicketRow(1, "b#1", 8, 1, (7, 4)),))
    both = Ledger(5, (*a.seats, *b.seats), (TicketRow(1, "b#1", 8, 2, (7, 4)), a.rows[1]))
    assert merged([a, b]) == both and merged([]) == Ledger(0, (), ())


# --- C9: memory ---


def test_a_voter_with_its_disk_is_the_same_and_silent_for_a_lease() -> None:
    ring, now = voter(), settings().quarantine_ns
    ring.receive("a#1", Sit(1, 7, Tenure(3, INC), 0), now)
    memory = msgspec.msgpack.decode(msgspec.msgpack.encode(ring.memory()), type=Memory)
    assert memory == ring.memory() and len(msgspec.msgpack.encode(memory)) < 1000
    back = voter(memory)
    newer = Sit(1, 9, Tenure(3, INC + 1), 0)
    assert not sent(back.receive("b#1", newer, LEASE - 1), Vouch)
    assert sent(back.receive("b#1", newer, LEASE), Vouch) == [Vouch(1, 9, "v#1")]
    assert not sent(back.receive("a#1", Sit(1, 9, Tenure(3, INC), 0), 3 * LEASE), Vouch)


@pytest.mark.parametrize("votes", [True, False])
def test_back_at_another_address_it_asks_for_a_vote_if_it_is_to_vote(votes: bool) -> None:
    known, now = Council(3, (Voter("a#1", True),), ()), 3 * settings().round_ns
    ring = CouncilRing("w#2", settings(), random.Random(1), Memory("v#1", known, None), disk=True, votes=votes)
    asked = [*ring.start(0), *ring.wake(now), *ring.wake(2 * now)]
    assert bool(sent(asked, Volunteer)) == votes


# --- C0 ---


def test_a_voter_that_has_not_started_forgets_nothing() -> None:
    memory = voter().memory()
    assert CouncilRing("v#2", settings(), random.Random(1), memory, disk=True).memory() == memory


def test_whoever_resigns_in_the_middle_of_a_question_may_come_back() -> None:
    w = form(1, 2, readers=1)
    w.drop("p1")
    w.run(2)
    w.sides = {"p1": 1}
    w.want("p1")
    assert w.run(20, lambda: w.named("p1").reading.question is not None), "nobody answers: it asks the council"
    w.drop("p1")
    w.heal()
    w.want("p1")
    assert w.run(10, w.everybody)


def test_nobody_founds_beside_a_council() -> None:
    w = form(1, 2)
    other = w.lives["p1"]
    w.drop("p1")
    w.run(2)
    w.act(other, lambda ring, now: ring.found(now, 9))
    assert any("council" in o.reason for o in w.said(Rejected, other))
    assert w.run(10, lambda: w.ring(other).state is State.OWNER)
    assert len(w.owners()) == 2 and max(w.councils) < 1 << 32


def test_a_founder_that_hears_of_a_council_asks_it_instead() -> None:
    w = form(2, 2)
    w.enter("new", wants=False)
    new = w.lives["new"]
    w.act(new, lambda ring, now: ring.found(now, 9))
    assert w.run(10, lambda: w.ring(new).state is State.OWNER)
    assert w.ring(new).inc.epoch == 1


def test_force_begins_a_generation_that_ends_the_lower_one() -> None:
    w = form(3, 2)
    gone = "p0" if w.newest()[0].member == w.lives["p0"] else "p1"
    left = "p1" if gone == "p0" else "p0"
    w.kill(gone)
    w.run(10)
    assert not w.owners() and not council_lives(w.rings) and council_lives(w.rings, [gone])
    me = w.lives[left]
    w.act(me, lambda ring, now: ring.found(now, ring.epoch + 1, force=True))
    assert w.run(10, lambda: w.ring(me).state is State.OWNER)
    assert w.ring(me).councils.now.number == 1 << 32 | 1 and w.ring(me).inc.epoch > 1
    w.start(gone)
    w.want(gone)
    assert w.run(20, w.everybody)


def test_force_does_not_take_the_epoch_of_a_founding_nobody_heard_of() -> None:
    """Rule C6. The only voter founds again and again while it is cut off, and crashes for good."""
    w = CouncilWorld(settings())
    w.enter("p0", wants=False)
    w.enter("p1", willing=False, wants=False)
    w.found_by("p0")
    w.run(5)
    w.sides["p0"] = 1
    for _ in range(3):
        w.drop("p0")
        w.run(3)
        w.want("p0")
        assert w.run(20, lambda: w.owner_names() == ["p0"])
    assert w.named("p0").epoch > w.named("p1").epoch + 1
    w.kill("p0")
    w.act(w.lives["p1"], lambda ring, now: ring.found(now, told_epoch(ring.epoch), force=True))
    assert w.run(10, lambda: w.owner_names() == ["p1"])  # else a Violation of I5


# --- leaving ---


def test_a_leaver_is_replaced_before_it_goes() -> None:
    w = form(4, 3)
    for name in ("p0", "p1"):
        me = w.lives[name]
        w.drop(name)
        w.act(me, lambda ring, now: ring.retire(now))
        assert w.run(20, lambda me=me: w.ring(me).retired)
        w.kill(name)
    assert w.run(20, w.everybody)
    assert [v.member for v in w.newest()] == [w.lives["p2"]]


@pytest.mark.parametrize("voters", [1, 2, 3, 5])
def test_all_may_go_at_once(voters: int) -> None:
    """Nobody waits to be replaced by one that leaves, too."""
    w = form(4, voters)
    for name, me in w.lives.items():
        w.introduce(me)
        w.drop(name)
        w.act(me, lambda ring, now: ring.retire(now))
    assert w.run(0.5, lambda: all(w.ring(me).retired for me in w.lives.values()))


def test_who_stays_is_asked_to_vote() -> None:
    """All voters leave; a member that never voted is the next council."""
    w = form(4, 2)
    w.enter("new", wants=False)
    w.introduce(w.lives["new"])
    for name in ("p0", "p1"):
        me = w.lives[name]
        w.ring(me).contacts([w.lives["new"]])
        w.drop(name)
        w.act(me, lambda ring, now: ring.retire(now))
    assert w.run(2, lambda: all(w.named(name).retired for name in ("p0", "p1")))
    assert [v.member for v in w.newest()] == [w.lives["new"]]


def test_a_voter_that_vouched_for_nobody_speaks_at_once_after_a_restart() -> None:
    """Rule C9. Its disk says so, also after an earlier restart in whose silence nothing was promised."""
    name, w = "p0", CouncilWorld(settings(), 5)
    w.enter(name, disk=True)
    w.found_by(name)
    voter = w.named(name).voting
    assert voter.memory() is not None and not voter.memory().rested
    w.drop(name)
    w.run(0.1)
    assert voter.memory().rested
    w.kill(name, 0.1)
    w.run(0.2)
    assert not w.named(name).voting.silent
    w.want(name)
    assert w.run(2, w.everybody)
    w.kill(name, 0.1)
    w.run(0.2)
    assert w.named(name).voting.silent and not w.named(name).voting.memory().rested


# --- many seeds ---


@pytest.mark.parametrize("name", SITUATIONS)
def test_what_comes_back(name: str) -> None:
    assert [seed for seed in range(2) if SITUATIONS[name](seed, CouncilRing).back is None] == []


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_cannot_come_back(name: str) -> None:
    assert [seed for seed in range(2) if IMPOSSIBLE[name](seed, CouncilRing).back is not None] == []


@pytest.mark.parametrize("name", RACES)
def test_races(name: str) -> None:
    for seed in range(10):
        RACES[name](seed)


@pytest.mark.parametrize("block", few(range(40), 2))
def test_chaos(block: int) -> None:
    for seed in range(10_000 + 10 * block, 10_010 + 10 * block):
        result = chaos(seed)
        assert result.took is not None or not result.hope, f"seed {seed} is stuck"


def test_a_claim_that_failed_keeps_nobody_out() -> None:
    """Its epoch was used for one ticket; grants under the ring's own, lower epoch were declined for ever."""
    assert chaos(20122).took is not None


def test_chaos_with_a_copy_of_a_grant() -> None:
    """A copy of ACKCJOIN was declined by the very process that had taken what it grants."""
    chaos(1256)
