"""The mutation score of `soak.refine`: every rule of the council is taken out or weakened in the code, one at a time,
and simulated runs are validated against the specification until one of them is refused.

    python -m soak.mutants [--seeds 40] [--only C3 ...]

A mutant that no run shows is no proof that the rule is idle: the runs may not reach the state that needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

from msgspec.structs import replace

import whence.core.ring.messages as msg
from soak.refine import SCENARIO, NotABehaviour, validate
from whence.core.ring import council as code
from whence.core.ring.context import State, Vote
from whence.core.ring.council import NO_BALLOT, CouncilLease, CouncilRing, Councils, Reform, Seat, Voting

LATE = SCENARIO.replace("reorder = 0.1", "reorder = 0.3").replace('reorder_by = "100ms"', 'reorder_by = "600ms"')
"""Messages overtake each other by more than a round of the ring: proposals of two voters cross."""
APART = (
    LATE.replace('cut = "8r"', 'cut = "4r"')
    .replace('slow = "12r"', 'slow = "5r"')
    .replace('crash = "9r"', 'crash = "6r"')
)
"""More of the faults that a council has to survive: voters cut off, slow, and back with an old disk."""
HARD = (
    APART.replace("loss = 0.05", "loss = 0.2")
    .replace("members = 5", "members = 6")
    .replace("tickets = 3", "tickets = 2")
    .replace('churn = "9r"', 'churn = "4r"')
    .replace('leave = "25r"', 'leave = "7r"')
    .replace('slow_by = "400ms"', 'slow_by = "1500ms"')
    .replace('settle = "20r"', 'settle = "80r"')
)
"""Councils change faster than news of them spread."""
WORLDS = {"usual": SCENARIO, "late": LATE, "apart": APART, "hard": HARD}


class Mutant(NamedTuple):
    rule: str
    what: str
    where: Any
    name: str
    instead: Any


def _resumed(change: Callable[[Vote], Vote], silent: bool = True) -> Callable[[Voting, Vote], None]:
    resume = Voting.resume

    def resumes(self: Voting, vote: Vote) -> None:
        resume(self, change(vote))
        self.silent_until = self.silent_until if silent else 0

    return resumes


def _begin(change: Callable[[msg.Ledger], msg.Ledger], lease: bool = True) -> Callable[..., None]:
    begin = Voting.begin

    def begins(self: Voting, council: msg.Council, table: msg.Ledger) -> None:
        begin(self, council, change(table))
        if self.book is not None and not lease:
            self.book.running.clear()

    return begins


def _lower(self: Reform, sender: str, m: msg.Prepare, usual: Any = Reform.on_prepare) -> None:
    if self.voting.book is not None and self.voting.book.number == m.council:
        self.voting.book.ballot = NO_BALLOT
    usual(self, sender, m)


def _hides(self: Reform, sender: str, m: msg.Prepare, usual: Any = Reform.on_prepare) -> None:
    book = self.voting.book
    accepted = None if book is None else book.accepted
    if book is not None:
        book.accepted = None
    usual(self, sender, m)
    if book is not None:
        book.accepted = accepted


def _early_vacate(self: Seat, usual: Any = Seat.leave) -> None:
    holder, _ = self.ctx.sitting()
    self.councils.tell_all(msg.Vacate(holder.tenure, self.ctx.seq))
    usual(self)


def _floorless(self: Voting, sender: str, m: msg.Vacate, usual: Any = Voting.on_vacate) -> None:
    book, ticket = self.book, msg.Holder(sender, *m.tenure).ticket
    floor = 0 if book is None else book.row(ticket).floor
    usual(self, sender, m)
    if book is not None and ticket in book.rows:
        book.rows[ticket] = book.rows[ticket]._replace(floor=floor)


def _unread(self: Reform) -> None:
    """`prepared`, without a quorum."""
    if self.proposal is not None and self.voting.book is not None:
        with mock.patch.object(self.councils, "enough", lambda voters, have: True):
            PREPARED(self)


PREPARED = Reform.prepared


def _serving(self: Voting, still: bool, closed: bool) -> bool:
    book = self.book
    standing = self.still_until is not None and self.ctx.now < self.still_until
    return book is not None and not self.silent and (still or not standing) and (closed or book.accepted is None)


def _hand(self: Voting, row: msg.TicketRow, holder: msg.Holder) -> bool:
    return holder.inc >= row.floor and holder.inc >= row.top


MUTANTS = (
    Mutant(
        "C1", "any half is a quorum", Councils, "enough", lambda s, v, h: 2 * sum(x.member in h for x in v) >= len(v)
    ),
    Mutant("C1", "any voter is a quorum", Councils, "enough", lambda s, v, h: any(x.member in h for x in v)),
    Mutant("C2", "a lease counts from its answer", CouncilLease, "dated", lambda self, sent, now: now),
    Mutant(
        "C2",
        "one vouch is enough for a lease",
        CouncilLease,
        "_count",
        lambda self: max((end for got in self.until.values() for end in got.values()), default=0),
    ),
    Mutant(
        "C2", "an owner goes on without its lease", CouncilRing, "owns_at", lambda s, now: s.ctx.state is State.OWNER
    ),
    Mutant("C3", "an older incarnation is vouched for", Voting, "newest", lambda self, row, holder: True),
    Mutant(
        "C3",
        "below the floor is vouched for",
        Voting,
        "newest",
        lambda self, row, h: h.inc > row.top or (h.inc == row.top and h.member == row.owner),
    ),
    Mutant("C3", "one incarnation in two hands", Voting, "newest", _hand),
    Mutant("C3", "two vouches at a time", Voting, "taken", lambda self, book, holder: False),
    Mutant("C3", "a vouch without a margin", Voting, "lease", property(lambda self: self.ctx.config.lease_ns // 2)),
    Mutant("C4", "an era is agreed to twice", Voting, "new_era", lambda self, book, era: era >= book.era),
    Mutant("C4", "claims of the living", Voting, "vacant", lambda self, book, tickets: True),
    Mutant("C4", "a claim raises no floor", code, "floor_of", lambda era: 0),
    Mutant("C7", "a voter that has closed goes on", Voting, "serving", lambda self: _serving(self, False, True)),
    Mutant("C7", "a council begins without a table", Voting, "begin", _begin(lambda t: msg.Ledger(t.era, (), ()))),
    Mutant("C7", "a council begins with era 0", Voting, "begin", _begin(lambda t: t._replace(era=0))),
    Mutant("C7", "a council forgets what runs", Voting, "begin", _begin(lambda t: t, lease=False)),
    Mutant("C8", "vouches while it stands still", Voting, "serving", lambda self: _serving(self, True, False)),
    Mutant("C8", "accepted by who has vouched since", Reform, "may_accept", lambda self, book, ballot: True),
    Mutant("C8", "what was accepted is not adopted", Reform, "decree", lambda self, p: p.want),
    Mutant("C8", "what was accepted is hidden", Reform, "on_prepare", _hides),
    Mutant("C8", "a lower ballot is promised", Reform, "on_prepare", _lower),
    Mutant("C8", "proposed without a quorum", Reform, "prepared", _unread),
    Mutant("C9", "speaks at once after a restart", Voting, "resume", _resumed(lambda v: v, silent=False)),
    Mutant(
        "C9", "a disk without rows", Voting, "resume", _resumed(lambda v: replace(v, table=v.table._replace(rows=())))
    ),
    Mutant(
        "C9", "a disk without its era", Voting, "resume", _resumed(lambda v: replace(v, table=v.table._replace(era=0)))
    ),
    Mutant(
        "C9",
        "a disk without ballots",
        Voting,
        "resume",
        _resumed(lambda v: replace(v, ballot=NO_BALLOT, accepted=None)),
    ),
    Mutant("C12", "the voters hear it before it is out", Seat, "leave", _early_vacate),
    Mutant("C12", "a leaver's incarnation may come again", Voting, "on_vacate", _floorless),
)


UNSEEN = {"an owner goes on without its lease", "one incarnation in two hands", "two vouches at a time"}
"""Second locks, which no run has reached: an owner's timer ends its tenure before it can publish; a grant that finds a
ticket taken needs an owner that is wrong about who lives. TLC reaches the last two (docs/results/proofs.md)."""


@contextmanager
def instead(mutant: Mutant) -> Iterator[None]:
    with mock.patch.object(mutant.where, mutant.name, mutant.instead):
        yield


def noticed(mutant: Mutant, seeds: int) -> tuple[int, str, str] | None:
    """The first run that is refused: its seed, its world, and what was broken."""
    with instead(mutant):
        for seed in range(1, seeds + 1):
            for world, text in WORLDS.items():
                try:
                    validate(seed, text)
                except NotABehaviour as error:
                    return seed, world, str(error).split("NotABehaviour: ")[-1].split(" on ")[0]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seeds", type=int, default=40, help="runs of each world before a mutant counts as not noticed"
    )
    parser.add_argument("--only", nargs="+", metavar="RULE", help="of these rules only")
    args = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if args.only is None or mutant.rule in args.only]
    score = 0
    print("| rule | in its place | noticed by |\n|---|---|---|")
    for mutant in chosen:
        found = noticed(mutant, args.seeds)
        score += found is not None
        by = (
            f"not in {args.seeds} runs of each world"
            if found is None
            else f"seed {found[0]}, {found[1]}: {found[2][:60]}"
        )
        print(f"| {mutant.rule} | {mutant.what} | {by} |", flush=True)
    print(f"\nnoticed: {score} of {len(chosen)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
