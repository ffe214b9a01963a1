"""Traces validated against the specification: every council step of simulated runs is a step of `proofs/council.tla`.

    python -m soak.refine --seeds 10000 [--first 1]

`Spec` has the variables of the specification, for every ticket, and one method for each of its actions, with the same
name and the same guards. It learns only what was said and done, not the state of the implementation. An action that is
not enabled is an error: specification and code have drifted apart, or one of them is wrong. Where the specification
has abstract time, the simulator's true time decides: a voter's row may end (VoterExpires) only when the owner's right
from it is over.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from whence.core import ports
from whence.core.clock import MemberId, address_of
from whence.core.config import Config
from whence.core.member import Member
from whence.core.ring.context import floor_of
from whence.core.ring.council import CouncilRing, Question, Voting
from whence.core.ring.messages import (
    Accept,
    Accepted,
    Agree,
    Ballot,
    Claim,
    Council,
    Holder,
    Ledger,
    Promise,
    Sit,
    TicketRow,
    Vacate,
    Voter,
    Vouch,
)
from whence.lab.sim.run import play
from whence.lab.sim.scenario import parse
from whence.lab.sim.world import World

SCENARIO = """
members = 5
round = "250ms"
duration = "60r"
settle = "20r"
[network]
latency = "normal"
mean = "5ms"
sd = "1ms"
loss = 0.05
dup = 0.02
reorder = 0.1
reorder_by = "100ms"
[clocks]
offset = "1h"
drift = 5000
[cluster]
tickets = 3
coordinators = 3
ring_round = "336ms"
delta = "28ms"
ring_k = 1
order = "reliable"
[cluster.workload]
rate = 0.3
[chaos]
start = "12r"
crash = "9r"
down = "6r"
disk = 0.6
leave = "25r"
away = "6r"
cut = "8r"
cut_for = "5r"
slow = "12r"
slow_by = "400ms"
slow_for = "5r"
churn = "9r"
"""


class NotABehaviour(AssertionError):
    """A step that the specification does not allow."""


def quorum(voters: Sequence[Voter], have: Collection[str]) -> bool:
    """C1, in words of its own: a mistake in the ring's is not repeated here."""
    missing = 2 * len([voter for voter in voters if voter.member not in have])
    return missing < len(voters) or (missing == len(voters) > 0 and voters[0].member in have)


@dataclass
class Spec:
    """The variables of `council.tla`, for all tickets."""

    now: Callable[[], int]
    councils: dict[int, tuple[Voter, ...]] = field(default_factory=dict)
    have: dict[Holder, dict[tuple[int, str], int]] = field(default_factory=dict)
    net: set[tuple[int, str, Holder]] = field(default_factory=set)
    released: set[Holder] = field(default_factory=set)
    row: dict[str, set[Holder]] = field(default_factory=dict)
    top: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)
    floor: dict[tuple[str, int], int] = field(default_factory=dict)
    era: dict[str, int] = field(default_factory=dict)
    stage: dict[str, int] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    still: set[str] = field(default_factory=set)
    silent: set[str] = field(default_factory=set)
    bal: dict[str, Ballot] = field(default_factory=dict)
    acc: dict[str, tuple[Ballot, tuple[Voter, ...]]] = field(default_factory=dict)
    acks: dict[tuple[str, int, int], set[str]] = field(default_factory=dict)
    tab: dict[tuple[int, Ballot], dict[str, Promise]] = field(default_factory=dict)
    req: dict[tuple[int, Ballot], set[str]] = field(default_factory=dict)
    accd: dict[tuple[int, Ballot], set[str]] = field(default_factory=dict)
    val: dict[tuple[int, Ballot], tuple[Voter, ...]] = field(default_factory=dict)
    hands: dict[tuple[int, int], MemberId] = field(default_factory=dict)
    owners: set[Holder] = field(default_factory=set)
    steps: int = 0

    def need(self, enabled: bool, action: str, guard: str, *about: object) -> None:
        self.steps += 1
        if not enabled:
            raise NotABehaviour(f"{action}{about}: {guard}")

    # -- time ---------------------------------------------------------------------------------------------------

    def live(self, seat: Holder) -> list[tuple[int, str]]:
        """The vouches of `have[s]` that have not run out (OwnerExpires has removed the others)."""
        return [cv for cv, until in self.have.get(seat, {}).items() if until > self.now()]

    def before(self, v: str) -> Callable[[tuple[int, str]], bool]:
        """`Before(v)`."""

        def of(cv: tuple[int, str]) -> bool:
            c, u = cv
            closed = self.stage.get(u, 0) > c or (self.stage.get(u) == c and u in self.closed)
            return u == v or (c < self.stage[v] and closed)

        return of

    def expirable(self, v: str, seat: Holder) -> bool:
        """VoterExpires(v, s) is enabled."""
        return seat in self.released or not any(map(self.before(v), self.live(seat)))

    def backed(self, seat: Holder) -> bool:
        live = self.live(seat)
        return any(quorum(voters, [v for n, v in live if n == c]) for c, voters in self.councils.items())

    def serving(self, v: str, c: int, action: str) -> None:
        self.need(self.stage.get(v) == c, action, "it has not begun this council", v, c)
        self.speak(v)
        self.need(v not in self.closed, action, "it has let the next council begin (C7)", v)
        self.need(v not in self.still, action, "it stands still (C8)", v)

    def speak(self, v: str) -> None:
        """It says something: after a restart, Speak(v) comes first."""
        if v in self.silent:
            running = [s for s in self.have if s not in self.row[v] and any(map(self.before(v), self.live(s)))]
            self.need(not running, "Speak", "a vouch of its last life still runs (C9)", v, running)
            self.silent.discard(v)

    # -- actions ------------------------------------------------------------------------------------------------

    def vouch(self, v: str, c: int, s: Holder) -> None:
        self.serving(v, c, "Vouch")
        inc, hand = self.top.get((v, s.ticket), (0, ""))
        self.need(s.inc >= self.floor.get((v, s.ticket), 0), "Vouch", "below the floor (C3)", v, s)
        self.need(s.inc >= inc, "Vouch", "an older incarnation (C3)", v, s)
        self.need(s.inc > inc or s.member == hand, "Vouch", "one incarnation in two hands (C3)", v, s)
        self.clear(v, [t for t in self.row.get(v, ()) if t.ticket == s.ticket and t != s], "Vouch")
        self.row.setdefault(v, set()).add(s)
        self.top[v, s.ticket] = (s.inc, s.member)
        self.net.add((c, v, s))

    def clear(self, v: str, seats: Iterable[Holder], action: str) -> None:
        """VoterExpires for each of them."""
        for seat in list(seats):
            self.need(self.expirable(v, seat), action, "another seat may still own (C3, C4)", v, seat)
            self.row[v].discard(seat)

    def answer(self, s: Holder, c: int, v: str, until: int) -> None:
        self.need((c, v, s) in self.net, "Answer", "nobody has vouched", v, s)
        self.have.setdefault(s, {})[c, v] = until

    def own(self, s: Holder) -> None:
        self.need(self.backed(s), "Answer", "no quorum of one council vouches (C2)", s)
        hand = self.hands.setdefault((s.ticket, s.inc), s.member)
        self.need(hand == s.member, "OneHand", "an incarnation in two hands", s, hand)
        other = [o for o in self.owners if o.ticket == s.ticket and o != s and self.backed(o)]
        self.need(not other, "OneOwner", "two owners", s, other)
        self.owners.add(s)

    def publish(self, s: Holder) -> None:
        self.need(s in self.owners and self.backed(s), "OwnerExpires", "it publishes without a lease (C2)", s)

    def dead(self, s: Holder) -> None:
        self.owners.discard(s)
        self.have.pop(s, None)

    def leave(self, s: Holder, out: bool) -> None:
        self.need(out, "Leave", "it tells the voters before it is out (C12)", s)
        self.dead(s)
        self.released.add(s)

    def vacate(self, v: str, s: Holder) -> None:
        self.need(s in self.released, "Vacate", "the owner is not out (C12)", v, s)
        self.row.get(v, set()).discard(s)
        key = (v, s.ticket)
        self.floor[key] = max(self.floor.get(key, 0), s.inc + 1)

    def claim_ack(self, v: str, by: str, m: Claim) -> None:
        self.serving(v, m.council, "ClaimAck")
        self.need(m.era > self.era.get(v, 0), "ClaimAck", "the era is not new (C4)", v, m.era)
        self.clear(v, [s for s in self.row.get(v, ()) if s.ticket in m.tickets], "ClaimAck")
        self.era[v] = m.era
        for ticket in m.tickets:
            self.floor[v, ticket] = max(self.floor.get((v, ticket), 0), floor_of(m.era))
        self.acks.setdefault((by, m.council, m.nonce), set()).add(v)

    def claimed(self, by: str, q: Question) -> None:
        agreed = self.acks.get((by, q.council, q.nonce), ())
        self.need(quorum(self.councils[q.council], agreed), "Claimed", "no quorum agrees (C4)", by, agreed)

    def restart(self, v: str, c: int, ballot: Ballot, accepted: object, table: Ledger) -> None:
        self.need(self.stage.get(v) == c, "Restart", "its disk is of another council (C9)", v, c)
        self.need((self.bal.get(v), self.acc.get(v)) == (ballot, accepted), "Restart", "its ballots are lost (C9)", v)
        self.remembers(v, table, "Restart")
        self.row[v] = set()
        self.still.discard(v)
        self.silent.add(v)

    def remembers(self, v: str, table: Ledger, action: str) -> None:
        """The table has all that the voter has to know."""
        rows = {r.ticket: r for r in table.rows}
        for (u, ticket), top in self.top.items():
            if u == v:
                row = rows.get(ticket)
                self.need(row is not None and (row.top, row.owner) == top, action, "a top is lost (C3, C9)", v, ticket)
        for (u, ticket), floor in self.floor.items():
            if u == v:
                row = rows.get(ticket)
                self.need(row is not None and row.floor >= floor, action, "a floor is lost (C4, C9)", v, ticket)
        self.need(table.era == self.era.get(v, 0), action, "an era is lost (C4, C9)", v)

    def prepare(self, v: str, m: Promise) -> None:
        self.need(self.stage.get(v) == m.council, "Prepare", "it has not begun this council", v)
        self.speak(v)
        self.need(m.ballot > self.bal[v], "Prepare", "the ballot is not above the last (C8)", v)
        self.need(m.accepted == self.acc.get(v), "Prepare", "it hides what it has accepted (C8)", v)
        self.remembers(v, m.table, "Prepare")
        self.clear(v, [s for s in self.row.get(v, ()) if s not in m.table.seats], "Prepare")
        self.bal[v] = m.ballot
        if v not in self.closed:
            self.still.add(v)
        self.tab.setdefault((m.council, m.ballot), {})[v] = m

    def resume(self, v: str, ballot: Ballot) -> None:
        self.need(v in self.still and ballot > self.bal[v], "Resume", "the ballot is not void (C8)", v)
        self.still.discard(v)
        self.bal[v] = ballot

    def propose(self, m: Accept, asked: Collection[str]) -> None:
        """`asked`: whose promises the proposer has read, of those that have promised."""
        key = (m.council, m.ballot)
        tab = self.tab.get(key, {})
        self.need(key not in self.req, "Propose", "two values for a ballot (C8)", key)
        self.need(set(asked) <= set(tab), "Propose", "a promise that nobody has made (C8)", key)
        self.need(quorum(self.councils[m.council], asked), "Propose", "no quorum has promised (C8)", key)
        old = [accepted for v in asked if (accepted := tab[v].accepted) is not None]
        self.need(not old or max(old)[1] == m.voters, "Propose", "another value may be decided (C8)", key)
        self.req[key], self.val[key] = set(asked), m.voters

    def accept(self, v: str, m: Accept) -> None:
        key = (m.council, m.ballot)
        self.need(self.stage.get(v) == m.council and self.bal[v] == m.ballot, "Accept", "another ballot (C8)", v)
        self.need(v in self.still or v in self.closed, "Accept", "it has vouched since (C8)", v)
        self.need(v in self.req.get(key, ()), "Accept", "its table was not read (C8)", v)
        self.need(self.val[key] == m.voters, "Accept", "not what was proposed (C8)", key)
        self.closed.add(v)
        self.still.discard(v)
        self.acc[v] = (m.ballot, m.voters)
        self.accd.setdefault(key, set()).add(v)

    def begin(self, v: str, council: Council, table: Ledger) -> None:
        c = council.number
        if council.before:
            self.decided(v, council, table)
        self.need(c > self.stage.get(v, 0), "Begin", "it has begun a later one", v, c)
        self.need(self.councils.setdefault(c, council.voters) == council.voters, "OneCouncil", "two councils", c)
        self.stage[v], self.row[v], self.era[v] = c, set(table.seats), table.era
        for known in (self.top, self.floor):
            for key in [key for key in known if key[0] == v]:
                del known[key]
        for r in table.rows:
            self.top[v, r.ticket], self.floor[v, r.ticket] = (r.top, r.owner), r.floor
        self.closed.discard(v)
        self.still.discard(v)
        self.acc.pop(v, None)
        self.bal[v] = Ballot(0, "")

    def decided(self, v: str, council: Council, table: Ledger) -> None:
        """A quorum of the council before has accepted it, and the table has what they knew (C7, C8)."""
        last = council.number - 1
        ballots = [
            b
            for (c, b), who in self.accd.items()
            if c == last and quorum(council.before, who) and self.val[c, b] == council.voters
        ]
        self.need(bool(ballots), "Begin", "no quorum has accepted it (C8)", v, council.number)
        lost = [self.lost(last, ballot, table) for ballot in ballots]  # two proposers may have finished the same decree
        self.need("" in lost, "Begin", lost[0], v, council.number)

    def lost(self, last: int, ballot: Ballot, table: Ledger) -> str:
        """What a voter that accepted this ballot knew and the table has not; "" if nothing."""
        rows = {r.ticket: r for r in table.rows}
        none = TicketRow(0, "", 0, 0, (0, 0))
        for u in self.accd[last, ballot]:
            told = self.tab[last, ballot][u].table
            if table.era < told.era:
                return f"an era is lost, which {u} knew (C7)"
            for r in told.rows:
                mine = rows.get(r.ticket, none)
                if (mine.top, mine.floor) < (r.top, 0) or mine.floor < r.floor:
                    return f"a row is lost, which {u} knew: {r}"
            gone = [s for s in told.seats if s not in table.seats]
            stands = [s for s in gone if s not in self.released and (last, u) in self.live(s)]
            if stands:
                return f"a vouch that runs is not in the table (C7): {stands}"
        return ""


class Observed(Member):
    """A member whose council steps are told to the specification."""

    spec: Spec
    true: Callable[[int], int]
    """True time at which its clock shows this."""

    def observe(self, spec: Spec, true: Callable[[int], int]) -> None:
        assert isinstance(self.ring, CouncilRing)
        self.spec, self.true = spec, true
        voting, councils, reform, lease = self.ring.voting, self.ring.councils, self.ring.reform, self.ring.seat.lease
        asked: list[Any] = []

        def during(name: str, of: object, act: Callable[..., Any]) -> None:
            """Remember what is being answered."""

            def wrapped(sender: MemberId, m: Any) -> None:
                asked.append((sender, m))
                act(sender, m)
                asked.pop()

            setattr(of, name, wrapped)

        for name in ("on_sit", "on_claim"):
            during(name, voting, getattr(voting, name))
        during("on_accept", reform, reform.on_accept)
        self._watch_answers(councils, asked)
        self._watch_voting(voting, councils)
        self._watch_questions(self.ring)
        before = lease.vouched

        def vouched(council: int, voter: MemberId, nonce: int, now: int) -> None:
            before(council, voter, nonce, now)
            holder = self.ring.ctx.holder  # type: ignore[union-attr]
            until = lease.until.get(council, {}).get(voter)
            if holder is not None and until is not None:
                spec.answer(holder, council, voter, true(until))

        lease.vouched = vouched  # type: ignore[method-assign]

    def _watch_answers(self, councils: Any, asked: list[Any]) -> None:
        spec, answer, tell_all = self.spec, councils.answer, councils.tell_all

        def answered(sender: MemberId, message: Any) -> None:
            v = councils.me.member
            match message:
                case Vouch():
                    who, poll = asked[-1]
                    assert isinstance(poll, Sit)
                    spec.vouch(v, message.council, Holder(who, *poll.mine))
                case Agree():
                    spec.claim_ack(v, *asked[-1])
                case Promise():
                    spec.prepare(v, message)
                case Accepted():
                    spec.accept(v, asked[-1][1])
            answer(sender, message)

        def told(message: Any) -> None:
            if isinstance(message, Vacate):
                holder = self.ring.ctx.holder  # type: ignore[union-attr]
                spec.leave(Holder(self.me, *message.tenure), holder is None)
            tell_all(message)

        councils.answer, councils.tell_all = answered, told

    def _watch_questions(self, ring: CouncilRing) -> None:
        spec, reading, reform, councils = self.spec, ring.reading, ring.reform, ring.councils
        agree, tell = reading.on_agree, councils.tell

        def agreed(sender: MemberId, m: Agree) -> None:
            q = reading.question
            agree(sender, m)
            if q is not None and q is not reading.question:
                spec.claimed(self.me, q)

        def tells(voter: MemberId, message: Any) -> None:
            p = reform.proposal
            if isinstance(message, Accept) and p is not None and (p.council, p.ballot) not in spec.val:
                spec.propose(message, p.promises)
            tell(voter, message)

        reading.on_agree, councils.tell = agreed, tells  # type: ignore[method-assign]

    def _watch_voting(self, voting: Voting, councils: Any) -> None:
        spec, begin, resume, resumes, vacate = self.spec, voting.begin, voting.resume, voting.resumes, voting.on_vacate

        def begins(council: Council, table: Ledger, *logs: Any) -> None:
            spec.begin(councils.me.member, council, table)
            begin(council, table, *logs)

        def restarts(vote: Any) -> None:
            spec.restart(councils.me.member, vote.council.number, vote.ballot, vote.accepted, vote.table)
            resume(vote)

        def goes_on(book: Any) -> None:
            resumes(book)
            spec.resume(councils.me.member, book.ballot)

        def vacates(sender: MemberId, m: Vacate) -> None:
            holder, book = Holder(sender, *m.tenure), voting.book
            if book is not None and holder in book.running.get(holder.ticket, {}):
                spec.vacate(councils.me.member, holder)
            vacate(sender, m)

        voting.begin, voting.resume = begins, restarts  # type: ignore[method-assign]
        voting.resumes, voting.on_vacate = goes_on, vacates  # type: ignore[method-assign]

    def handle(self, input: ports.Input, now: int) -> list[ports.Output]:
        out = super().handle(input, now)
        for o in out:
            if isinstance(o, ports.Ticket):
                seat = Holder(self.me, o.ticket, o.inc.packed)
                if o.change == "owner":
                    self.spec.own(seat)
                elif o.change in ("lost", "released"):
                    self.spec.dead(seat)
            elif isinstance(o, ports.Published):
                self.spec.publish(Holder(self.me, o.frame.ticket, o.frame.inc))  # type: ignore[union-attr]
        return out


def validate(seed: int, text: str = SCENARIO, kind: type[Observed] = Observed) -> int:
    """Run one simulation; how many guards were checked. Raises NotABehaviour."""
    worlds: list[World] = []
    spec = Spec(lambda: worlds[0].now)

    def make(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> Member:
        member = kind(me, config, rng, checkpoint)
        member.observe(spec, lambda local: worlds[0].hosts[address_of(me)].clock.when(local))
        return member

    worlds.append(World(parse(text), seed, make=make))
    violation = play(worlds[0])
    if violation is not None:
        raise NotABehaviour(f"seed {seed}: {violation}")
    return spec.steps


def main(arguments: Collection[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=1)
    args = parser.parse_args(None if arguments is None else list(arguments))
    steps = wrong = 0
    for seed in range(args.first, args.first + args.seeds):
        try:
            steps += validate(seed)
        except NotABehaviour as error:
            wrong += 1
            print(f"seed {seed}: {error}", flush=True)
        done = seed - args.first + 1
        if done % 100 == 0 or done == args.seeds:
            print(f"{done} traces, {steps} guards checked, {wrong} not behaviours of the specification", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
