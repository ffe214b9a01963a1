"""Three processes elect a leader: whoever is first in the one sequence of total order leads, until its claim is over.

    python examples/leader.py

All of them read the same sequence, so all agree on who leads, and since when. A claim that loses changes nothing.
"""

from __future__ import annotations

import asyncio

import whence
from whence.testing import MemoryNetwork


async def elect(cluster: whence.Cluster, publisher: whence.Publisher, rounds: int) -> list[str]:
    """The leaders of so many terms, as this member sees them; it stands for each."""
    leaders: list[str] = []
    events = cluster.events()
    while len(leaders) < rounds:
        term = len(leaders)
        await publisher.publish(b"%d" % term)
        async for event in events:
            if int(event.payload) == len(leaders):  # the first claim of a term has it; the others come too late
                leaders.append(event.origin)
                break
    return leaders


async def main() -> None:
    network = MemoryNetwork()
    options = {"transport": network, "order": "total", "tickets": 3}
    async with (
        whence.create("office", "a:1", **options) as ann,
        whence.join("office", ["a:1"], "b:1", **options) as bob,
        whence.join("office", ["a:1"], "c:1", **options) as eve,
        ann.publisher() as one,
        bob.publisher() as two,
        eve.publisher() as three,
    ):
        for publisher in (one, two, three):
            await publisher.ready()
        seen = await asyncio.gather(elect(ann, one, 5), elect(bob, two, 5), elect(eve, three, 5))
    assert seen[0] == seen[1] == seen[2], seen
    print(f"{len(seen[0])} terms, and everybody agrees who led each of them")


if __name__ == "__main__":
    whence.run(main())
