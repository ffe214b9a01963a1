"""Generated traces with loss, duplicates, reordering, restarts, snapshots, tickets that change hands, several
publishers, at least three members and every order; and the same traces with parts cut out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Container

import msgspec

from whence.audit.trace import Row
from whence.audit.trace.schema import KINDS

ORDERS = ("unordered", "fifo", "causal", "reliable", "probabilistic")


class Made:
    """The rows of one run, made step by step."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: list[Row] = []
        self._lseq: Counter[str] = Counter()
        self._count: Counter[str] = Counter()
        self._incarnation: dict[int, tuple[str, int]] = {}

    def row(self, member: str, kind: str, **more: str | int | None) -> None:
        t = len(self.rows) * 10 + self.rng.randrange(30)  # clocks that differ a little
        self.rows.append(Row("r", "c", member, self._lseq[member], t, kind, **more))  # type: ignore[arg-type]
        self._lseq[member] += 1

    def publish(self, member: str, ticket: int) -> str:
        """Under a ticket, of which the member becomes the owner first if it is not."""
        owner, number = self._incarnation.get(ticket, ("", 0))
        if owner != member:
            number += 1
            self._incarnation[ticket] = member, number
            self.row(member, "ticket", ticket=ticket, reason=f"owner 0.{ticket}.{number}")
        self._count[member] += 1
        event = f"{ticket}:0.{ticket}.{number}:{self._count[member]}@{member}"
        self.row(member, "publish", event=event, origin=member, ticket=ticket)
        return event

    def deliver(self, member: str, event: str) -> None:
        self.row(member, "deliver", event=event, origin=event.partition("@")[2])


def trace(seed: int, length: int = 60, *, wrong: bool = True, everybody: bool = False) -> list[Row]:
    """One run. `wrong`: deliveries come early, late, twice, of nothing; else every member delivers in causal order, and
    loses nothing of what it goes on without. `everybody`: all members publish."""
    rng = random.Random(seed)
    made = Made(rng)
    tidy = rng.choice([0.5, 0.9, 0.98]) if wrong else 1.0
    members = [f"m{i}#1" for i in range(rng.randint(3, 6))]
    tickets = {m: i for i, m in enumerate(members)}
    orders: dict[str, str] = {}

    def order(member: str) -> str:
        orders[member] = rng.choice(ORDERS)
        return orders[member]

    for member in members:
        made.row(member, "join", reason="genesis", order=order(member))
    publishers = members[: rng.randint(2, len(members))]
    deaf = "deaf#1"  # has nothing of others
    if wrong and rng.random() < 0.2:
        made.row(deaf, "join", reason="genesis", order=order(deaf))
    got: dict[str, list[str]] = {m: [] for m in members}
    events: list[str] = []
    tokens, shared = 0, 99  # a ticket that changes hands
    for _ in range(length):
        member, dice = rng.choice(members), rng.random()
        if dice < 0.25 and (everybody or member in publishers):
            if not wrong:  # it has to have all that it has heard of
                for event in events:
                    if event not in got[member]:
                        made.deliver(member, event)
                        got[member].append(event)
            events.append(made.publish(member, rng.choice([tickets[member], shared])))
            if not wrong or rng.random() < 0.9:
                made.deliver(member, events[-1])
                got[member].append(events[-1])
        elif dice < 0.88 and events:
            new = [e for e in events if e not in got[member]]
            if wrong and rng.random() < 0.1:
                made.row(member, "drop", event=rng.choice(events), reason="late")
            if rng.random() < tidy:
                event = new[0] if new else ""
            else:
                event = rng.choice([*events, rng.choice(events), "9:0.0.9:1@nobody#1"])
            if event:
                made.deliver(member, event)
                got[member].append(event)
        elif dice < 0.93:
            tokens += 1
            made.row(member, "snapshot", token=f"t{tokens}")
            if rng.random() < 0.7:
                new_member = f"j{tokens}#1"
                members.append(new_member)
                tickets[new_member] = len(tickets)
                got[new_member] = list(got[member])
                made.row(
                    new_member, "join", reason="snapshot", token=f"t{tokens}", peer=member, order=order(new_member)
                )
                if rng.random() < 0.5:
                    publishers.append(new_member)
            elif rng.random() < 0.5:  # another one falls back to this state
                other = rng.choice(members)
                got[other] = list(got[member])
                made.row(other, "join", reason="snapshot", token=f"t{tokens}", peer=member, order=orders[other])
        elif dice < 0.97:
            address, boot = member.split("#")
            again = f"{address}#{int(boot) + 1}"
            if rng.random() < 0.7:
                made.row(member, "crash")
            members[members.index(member)] = again
            tickets[again] = len(tickets)
            got[again] = list(got[member])
            made.row(again, "join", reason="checkpoint", peer=member, order=order(again))
            if member in publishers:
                publishers.append(again)
        elif len(members) > 3:
            members.remove(member)
            made.row(member, "leave")
    if not wrong:
        for member in members:
            for event in events:
                if event not in got[member]:
                    made.deliver(member, event)
    return made.rows


def mixed_up(rows: list[Row], rng: random.Random, kinds: Container[str] = KINDS) -> list[Row]:
    """The same run with some steps (of these kinds) of each member in another order: events are delivered before they
    are published, states are taken before they are given, and members wait for each other in circles."""
    number = {(row.member, row.lseq): row.lseq for row in rows}
    for member in sorted({row.member for row in rows}):
        steps = sorted(row.lseq for row in rows if row.member == member and row.kind in kinds)
        for _ in range(rng.randrange(4) if steps else 0):
            a, b = rng.choice(steps), rng.choice(steps)
            number[member, a], number[member, b] = number[member, b], number[member, a]
    return [msgspec.structs.replace(row, lseq=number[row.member, row.lseq]) for row in rows]


def cut(rows: list[Row], rng: random.Random) -> list[Row]:
    """The same run with some rows missing: a file, a tail, a beginning, some steps in a row, or single steps, of one or
    two members."""
    gone: set[tuple[str, int]] = set()
    for member in rng.sample(sorted({row.member for row in rows}), rng.choice([1, 1, 2])):
        mine = [row for row in rows if row.member == member]
        a, b = sorted((rng.randrange(len(mine) + 1), rng.randrange(len(mine) + 1)))
        parts = (mine, mine[a:], mine[:b], mine[:1], mine[a:b], mine[a : a + 1], rng.sample(mine, len(mine) // 10))
        gone |= {(row.member, row.lseq) for row in rng.choice(parts)}
    return [row for row in rows if (row.member, row.lseq) not in gone]


def pairs(
    rounds: int, late: dict[int, int], run: str = "r", order: str = "probabilistic", over: bool = False
) -> list[Row]:
    """A cluster of five in which nearly everything is in order: in each round `a` publishes a cause and `b` its effect.
    The first `late[round]` of the other three deliver the effect first. That makes 8 deliveries of others' events a
    round. `over`: all of them leave at the end."""
    made = Made(random.Random(run))
    members = [f"{name}#1" for name in "abcde"]
    for member in members:
        made.row(member, "join", reason="genesis", order=order)
    for n in range(rounds):
        cause = made.publish("a#1", 0)
        made.deliver("a#1", cause)
        made.deliver("b#1", cause)
        effect = made.publish("b#1", 1)
        made.deliver("b#1", effect)
        made.deliver("a#1", effect)
        for k, member in enumerate(members[2:]):
            for event in (effect, cause) if k < late.get(n, 0) else (cause, effect):
                made.deliver(member, event)
    for member in members if over else ():
        made.row(member, "leave")
    return [msgspec.structs.replace(row, run=run) for row in made.rows]
