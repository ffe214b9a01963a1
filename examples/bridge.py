"""Two clusters and a bridge between them: Ann asks in the lobby, Bob answers in the hall, Eve and Zoe only read.

    python examples/bridge.py

What Ann says only to the lobby stays there. Everywhere an answer comes after its question, although the clusters share
no clocks. For production use, see `whence bridge`.
"""

import asyncio
from typing import Any

import whence
from whence.live import Bridge, Reader, Said, everywhere

QUESTIONS = [b"tea?", b"milk?", b"sugar?"]


async def ann(cluster: whence.Cluster) -> None:
    """Asks everybody, and says something to the lobby alone."""
    async with cluster.publisher() as publisher:
        for question in QUESTIONS:
            await publisher.publish(b"(let us ask the hall)")
            await publisher.publish(everywhere(question))


async def bob(cluster: whence.Cluster) -> None:
    """Answers everybody."""
    reader, answered = Reader(cluster.name), 0
    async with cluster.publisher() as publisher:
        async for event in cluster.events():
            said = reader.read(event.id, event.payload)
            if said is not None and said.payload in QUESTIONS:
                await publisher.publish(everywhere(said.payload.replace(b"?", b": yes!")))
                answered += 1
                if answered == len(QUESTIONS):
                    return


async def listen(cluster: whence.Cluster) -> list[Said]:
    """Reads until every question is answered."""
    reader, read = Reader(cluster.name), list[Said]()
    async for event in cluster.events():
        said = reader.read(event.id, event.payload)
        if said is not None:
            read.append(said)
        if sum(b"yes!" in said.payload for said in read) == len(QUESTIONS):
            break
    return read


HOW: dict[str, Any] = {"insecure": True, "order": "reliable"}  # causal, and no event is given up


async def main() -> None:
    async with (
        whence.create("lobby", **HOW) as for_ann,
        whence.join("lobby", [for_ann.address], **HOW) as for_eve,
        whence.create("hall", **HOW) as for_bob,
        whence.join("hall", [for_bob.address], **HOW) as for_zoe,
        Bridge(
            {"lobby": {"contacts": [for_ann.address], **HOW}, "hall": {"contacts": [for_bob.address], **HOW}}
        ) as bridge,
    ):
        carrying = asyncio.create_task(bridge.run())
        readers = [asyncio.create_task(listen(cluster)) for cluster in (for_eve, for_zoe)]
        await asyncio.gather(ann(for_ann), bob(for_bob))
        eve, zoe = await asyncio.gather(*readers)
        carrying.cancel()
    for name, read in (("Eve, in the lobby", eve), ("Zoe, in the hall", zoe)):
        print(f"{name}, reads:")
        for said in read:
            print(f"  {said.payload.decode():22} born in the {said.cluster}")
        said_before = [said.payload for said in read]
        for question in QUESTIONS:
            assert said_before.index(question) < said_before.index(question.replace(b"?", b": yes!"))
    print(f"{len(QUESTIONS)} answers, each after its question, in both clusters")


if __name__ == "__main__":
    asyncio.run(main())
