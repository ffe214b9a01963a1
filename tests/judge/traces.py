"""Generated traces with loss, duplicates, reordering, restarts, snapshots, several publishers, at least three members
and every order."""

from __future__ import annotations

import random
from collections import Counter

from whence.trace import Row

ORDERS = ("unordered", "fifo", "causal", "reliable", "probabilistic")


class Made:
    """The rows of one run, made step by step."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: list[Row] = []
        self._lseq: Counter[str] = Counter()
        self._count: Counter[str] = Counter()

    def row(self, member: str, kind: str, **more: str | int | None) -> None:
        t = len(self.rows) * 10 + self.rng.randrange(30)  # clocks that differ a little
        self.rows.append(Row("r", "c", member, self._lseq[member], t, kind, **more))  # type: ignore[arg-type]
        self._lseq[member] += 1

    def publish(self, member: str, ticket: int) -> str:
        self._count[member] += 1
        event = f"{ticket}:0.0.{ticket}:{self._count[member]}@{member}"
        self.row(member, "publish", event=event, origin=member, ticket=ticket)
        return event

    def deliver(self, member: str, event: str) -> None:
        self.row(member, "deliver", event=event, origin=event.partition("@")[2])


def trace(seed: int, length: int = 60, *, wrong: bool = True) -> list[Row]:
    """One run. `wrong`: deliveries come early, late, twice, of nothing; else every member delivers in causal order, and
    loses nothing of what it goes on without."""
    rng = random.Random(seed)
    made = Made(rng)
    tidy = rng.choice([0.5, 0.9, 0.98]) if wrong else 1.0
    members = [f"m{i}#1" for i in range(rng.randint(3, 6))]
    tickets = {m: i for i, m in enumerate(members)}
    for member in members:
        made.row(member, "join", reason="genesis", order=rng.choice(ORDERS))
    publishers = members[: rng.randint(2, len(members))]
    got: dict[str, list[str]] = {m: [] for m in members}
    events: list[str] = []
    tokens = 0
    for _ in range(length):
        member, dice = rng.choice(members), rng.random()
        if dice < 0.25 and member in publishers:
            if not wrong:  # it has to have all that it has heard of
                for event in events:
                    if event not in got[member]:
                        made.deliver(member, event)
                        got[member].append(event)
            events.append(made.publish(member, tickets[member]))
            if not wrong or rng.random() < 0.9:
                made.deliver(member, events[-1])
                got[member].append(events[-1])
        elif dice < 0.88 and events:
            new = [e for e in events if e not in got[member]]
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
                order = rng.choice(ORDERS)
                made.row(new_member, "join", reason="snapshot", token=f"t{tokens}", peer=member, order=order)
                if rng.random() < 0.5:
                    publishers.append(new_member)
        elif dice < 0.97:
            address, boot = member.split("#")
            again = f"{address}#{int(boot) + 1}"
            if rng.random() < 0.7:
                made.row(member, "crash")
            members[members.index(member)] = again
            tickets[again] = len(tickets)
            got[again] = list(got[member])
            made.row(again, "join", reason="checkpoint", peer=member, order=rng.choice(ORDERS))
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
