"""Each rule of the council switched off alone: its scenario passes with the rule and fails without it.

C0 is tested in `test_council.py`; C11 is left out (docs/ring.md).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.core.ring.council.chaos import chaos
from tests.core.ring.council.races import RACES
from tests.core.ring.council.survival import SITUATIONS
from tests.core.ring.world import Make, Violation, without
from whence.core.clock import MemberId
from whence.core.clock.logs import Logs
from whence.core.ring import CouncilRing
from whence.core.ring.context import Vote
from whence.core.ring.council import Book, CouncilLease, Councils, Proposal, Reading, Reform, Seat, Voting
from whence.core.ring.messages import Ballot, Council, Holder, Ledger, TicketRow, Vacate, Voter


class Off(NamedTuple):
    rule: str
    make: Make
    where: str
    """A race, a row of `survival`, or `chaos`."""
    seeds: Sequence[int]
    """One of these must fail without the rule, and none with it."""


def off(rule: str, part: str, kind: type, where: str, seeds: Sequence[int] = range(6)) -> Off:
    return Off(rule, without(part, kind, CouncilRing), where, seeds)


# --- C1 ---


class AnyHalf(Councils):
    def enough(self, voters: Sequence[Voter], have: Collection[MemberId]) -> bool:
        return 0 < len(voters) <= 2 * sum(v.member in have for v in voters)


class NoTieBreak(Councils):
    def enough(self, voters: Sequence[Voter], have: Collection[MemberId]) -> bool:
        return len(voters) < 2 * sum(v.member in have for v in voters)


# --- C2, C3 ---


class FromArrival(CouncilLease):
    def dated(self, sent: int, now: int) -> int:
        return now


class NoDrift(Voting):
    @property
    def lease(self) -> int:
        return self.ctx.config.lease_ns


class ForgetsOlder(Voting):
    def newest(self, row: TicketRow, holder: Holder) -> bool:
        return True


# --- C3 and C4: two locks on one door, so both are taken off ---


class OverTheLiving(Voting):
    def taken(self, book: Book, holder: Holder) -> bool:
        return False

    def vacant(self, book: Book, tickets: Iterable[int]) -> bool:
        return True


class EraTwice(Voting):
    def new_era(self, book: Book, era: int) -> bool:
        return True


# --- C5, C6 ---


class NoMending(Reading):
    def _mend(self, q: object, seats: tuple[Holder, ...]) -> None:
        self.forget()


class NoFounding(Reading):
    def _found(self, q: object, seats: tuple[Holder, ...], before: int) -> None:
        self.forget()


# --- C7, C8 ---


class GoesOnVouching(Voting):
    def serving(self) -> bool:
        return self.book is not None and not self.silent


class NoTable(Voting):
    def begin(self, council: Council, table: Ledger, logs: Logs | None = None) -> None:
        super().begin(council, Ledger(0, (), ()), logs)


class OwnDecree(Reform):
    def decree(self, p: Proposal) -> tuple[Voter, ...]:
        return p.want


class AsksAll(Reform):
    def asked(self, p: Proposal, book: Book) -> Sequence[MemberId]:
        return [v.member for v in book.council.voters]

    def may_accept(self, book: Book, ballot: Ballot) -> bool:
        return ballot >= book.ballot


class LateAccept(Reform):
    def may_accept(self, book: Book, ballot: Ballot) -> bool:
        return ballot >= book.ballot


class NotVoid(Voting):
    def resumes(self, book: Book) -> None:
        self.still_until = None


# --- C9, C10, C12 ---


class SpeaksAtOnce(Voting):
    def resume(self, vote: Vote) -> None:
        super().resume(vote)
        self.silent_until = 0


class Amnesia(Voting):
    def resume(self, vote: Vote) -> None:
        self.book = Book(vote.council)


class DeadStay(Reform):
    def consider(self) -> None:
        if len(self.councils.now.voters) < 3:  # it grows, but replaces nobody
            super().consider()


class NoReceivers(Reform):
    def attend(self) -> None:
        if self.ctx.wanted or self.councils.seated:
            super().attend()


class ReleasedFirst(Seat):
    def leave(self) -> None:
        holder, _ = self.ctx.sitting()
        self.councils.tell_all(Vacate(holder.tenure, self.ctx.seq))
        self.ctx.resigning = False


RULES = {
    "any half": off("C1", "councils", AnyHalf, "chaos", [1]),
    "no tie-break": off("C1", "councils", NoTieBreak, "2 publishers, the other one killed for good"),
    "dated by arrival": off("C2", "seat.lease", FromArrival, "slow_answers", [0, 20, 21]),
    "no drift": off("C3", "voting", NoDrift, "clocks"),
    "forgets older": off("C3", "voting", ForgetsOlder, "old_incarnation"),
    "over the living": off("C4", "voting", OverTheLiving, "chaos", [30, 52]),
    "an era twice": off("C4", "voting", EraTwice, "chaos", [14, 22]),
    "no mending": off("C5", "reading", NoMending, "rolling restart of 5, no disk"),
    "no founding again": off("C6", "reading", NoFounding, "2 killed, 5 receive-only now want to publish"),
    "goes on vouching": off("C7", "voting", GoesOnVouching, "late_accept"),
    "no table": off("C7", "voting", NoTable, "chaos", [8]),
    "not adopted": off("C8", "reform", OwnDecree, "half_begun"),
    "not asked": off("C8", "reform", AsksAll, "not_asked"),
    "late": Off("C8", without("voting", NotVoid, without("reform", LateAccept, CouncilRing)), "late_accept", range(6)),
    "speaks at once": off("C9", "voting", SpeaksAtOnce, "restart"),
    "amnesia": off("C9", "voting", Amnesia, "restart"),
    "the dead stay": off("C10", "reform", DeadStay, "3, two killed one by one, the first is left"),
    "no receive-only voters": off("C10", "reform", NoReceivers, "2 killed, 5 receive-only now want to publish"),
    "released first": off("C12", "seat", ReleasedFirst, "leaver"),
}


def failure(where: str, seed: int, make: Make) -> str:
    """What goes wrong: a violation, or somebody does not come back who should; empty: nothing."""
    try:
        if where in RACES:
            RACES[where](seed, make)
        elif where == "chaos":
            result = chaos(seed, make)
            return "stuck" if result.took is None and result.hope else ""
        elif SITUATIONS[where](seed, make).back is None:
            return "does not come back"
    except Violation as violation:
        return str(violation).splitlines()[0]
    return ""


@pytest.mark.parametrize("name", RULES)
def test_without_the_rule_it_fails(name: str) -> None:
    rule = RULES[name]
    assert any(failure(rule.where, seed, rule.make) for seed in rule.seeds)


@pytest.mark.parametrize("name", RULES)
def test_with_all_rules_it_does_not(name: str) -> None:
    rule = RULES[name]
    assert [found for seed in rule.seeds if (found := failure(rule.where, seed, CouncilRing))] == []


def test_every_rule_is_switched_off() -> None:
    text = (Path(__file__).parents[4] / "docs" / "ring.md").read_text(encoding="utf-8")
    rules = set(re.findall(r"^\*\*(C\d+)\b", text, re.M))
    assert rules - {rule.rule for rule in RULES.values()} == {"C0", "C11"}
