"""Three people in a chat room: Ann asks, Bob answers what he has read, Cid only reads. One message in five is lost.

    python examples/chat.py

No answer ever comes before its question, at nobody: that is causal order. For a chat to use, see `whence chat`.
"""

import asyncio
import os

import whence
from whence.api import Join
from whence.testing import Faults

QUESTIONS = [b"tea?", b"milk?", b"sugar?", b"biscuits?", b"more?"]


async def ann(seat: whence.Seat) -> None:
    """Asks one question after the other, without waiting for an answer."""
    for question in QUESTIONS:
        await seat.publish(question)
        await asyncio.sleep(0.3)


async def bob(cluster: whence.Cluster, seat: whence.Seat) -> None:
    """Answers what he reads."""
    asked = 0
    async for event in cluster.events():
        if event.payload.endswith(b"?"):
            await seat.publish(event.payload.replace(b"?", b": yes, please!"))
            asked += 1
            if asked == len(QUESTIONS):
                return


async def cid(cluster: whence.Cluster) -> list[str]:
    """Reads until every question is answered."""
    read: list[str] = []
    async for event in cluster.events():
        read.append(event.payload.decode())
        print(f"Cid reads: {read[-1]:24} (from {event.origin}{', after a gap' if event.over_gap else ''})")
        if len(read) == 2 * len(QUESTIONS):
            break
    return read


async def main() -> None:
    secret = os.urandom(32)

    def member(number: int, *seeds: str) -> Join:  # reliable order: causal, and nothing is given up
        return whence.join("tea", seeds, secret=secret, order="reliable", faults=Faults(0.2, seed=number))

    async with (
        member(1) as a,
        member(2, a.address) as b,
        member(3, a.address) as c,
        a.coordinate(timeout=60) as anns_seat,
        b.coordinate(timeout=60) as bobs_seat,
    ):
        _, _, read = await asyncio.gather(ann(anns_seat), bob(b, bobs_seat), cid(c))
    for line in read:
        if ":" in line:
            question = line.partition(":")[0] + "?"
            assert read.index(question) < read.index(line), f"the answer to {question} came first"
    print(f"{len(QUESTIONS)} answers, each after its question")


if __name__ == "__main__":
    whence.run(main())
