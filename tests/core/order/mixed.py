"""Members of all orders in one cluster, tickets that change hands without a word: `python -m tests.core.order.mixed
COUNT [FIRST]`.

Each new owner closes over what it has itself, so there are orphans everywhere. `causal` and `reliable` members may
deliver no event before its causes, and `reliable` members agree, whoever published.
"""

from __future__ import annotations

import random
import sys

from tests.core.order.net import MS, Net
from whence.core.clock import Incarnation

TICKETS = 3


def mixed(seed: int) -> list[str]:
    """What went wrong under one seed."""
    r = random.Random(seed)
    members = r.randint(4, 7)
    orders = [r.choice(["reliable", "reliable", "causal", "fifo", "unordered"]) for _ in range(members)]
    net = Net(orders, TICKETS, seed, r.choice([0, 0.1, 0.3]), r.choice([0, 0.2]), recovery=r.choice(["R1", "Rk"]))
    owners = list(range(TICKETS))
    terms = [0] * TICKETS
    for _ in range(r.randint(40, 120)):
        ticket = r.randrange(TICKETS)
        if net[owners[ticket]].alive:
            to = None if r.random() < 0.5 else r.sample(range(members), r.randint(0, members - 1))
            net.publish(owners[ticket], ticket, Incarnation(1, terms[ticket], 1).packed, r.randint(1, 2), to)
        if r.random() < 0.12:
            ticket = r.randrange(TICKETS)
            if r.random() < 0.3 and sum(p.alive for p in net.processes.values()) > 3:
                net[owners[ticket]].alive = False
            free = [i for i in range(members) if net[i].alive and i not in owners]
            if free:
                owners[ticket] = r.choice(free)
                terms[ticket] += 1
        net.run(net.now + r.randint(0, 30) * MS, digests=r.choice([None, 20 * MS]))
    net.run(net.now + 30_000 * MS)
    return wrong(net)


def wrong(net: Net) -> list[str]:
    live = [(p, p.ordering.config.order) for p in net.processes.values() if p.alive]
    agreed = set().union(*(p.delivered for p, order in live if order == "reliable"))
    found = []
    for p, order in live:
        if p.repeats:
            found.append(f"{p.name} ({order}) delivered twice: {p.repeats}")
        if order in ("causal", "reliable") and p.inversions:
            found.append(f"{p.name} ({order}) delivered after their effects: {p.inversions}")
        if order == "reliable" and agreed - set(p.delivered):
            found.append(f"{p.name} ({order}) lacks {sorted(agreed - set(p.delivered))}")
    return found


def main(count: int, first: int) -> int:
    bad = {seed: found for seed in range(first, first + count) if (found := mixed(seed))}
    for seed, found in bad.items():
        print(seed, *found, sep="\n  ")
    print(f"{count} seeds from {first}: {len(bad)} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
