"""Three people in a chat room: Ann asks, Bob answers what he has read, Cid only reads. One message in five is lost.

    python examples/chat.py

Nobody sees an answer before its question: that is causal order. For a real chat, see `whence chat`.
"""

import asyncio
import os
from typing import Any

import whence
from whence.testing import Faults

QUESTIONS = [b"tea?", b"milk?", b"sugar?", b"biscuits?", b"more?"]


async def ann(publisher: whence.Publisher) -> None:
    """Asks several questions without waiting for answers."""
    for question in QUESTIONS:
        await publisher.publish(question)
        await asyncio.sleep(0.3)


async def bob(cluster: whence.Cluster, publisher: whence.Publisher) -> None:
    """Answers what he reads."""
    asked = 0
    async for event in cluster.events():
        if event.payload.endswith(b"?"):
            await publisher.publish(event.payload.replace(b"?", b": yes, please!"))
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

    def how(number: int) -> dict[str, Any]:  # reliable order: causal, and nothing is given up
        return {"secret": secret, "order": "reliable", "faults": Faults(0.2, seed=number)}

    async with (
        whence.create("tea", **how(1)) as a,
        whence.join("tea", a.address, **how(2)) as b,
        whence.join("tea", a.address, **how(3)) as c,
        a.publisher() as anns,
        b.publisher() as bobs,
    ):
        _, _, read = await asyncio.gather(ann(anns), bob(b, bobs), cid(c))
    for line in read:
        if ":" in line:
            question = line.partition(":")[0] + "?"
            assert read.index(question) < read.index(line), f"the answer to {question} came first"
    print(f"{len(QUESTIONS)} answers, each after its question")


if __name__ == "__main__":
    whence.run(main())
