"""A shared document: three people write at once, a fourth joins late. One message in twenty is lost.

    python examples/document.py

Everybody ends with the same text. Needs the extra `document` (pip install 'whence[document]').
"""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import whence
from whence.live import Document, Live, Objects
from whence.testing import Faults

VERSES = {
    "ann": "The rain set early in to-night,\n",
    "bob": "The sullen wind was soon awake,\n",
    "cid": "It tore the elm-tops down for spite,\n",
}


def place(draft: str, typed: str) -> int:
    """Where a person continues typing a line: where the typed part ends now, or at the top of the page.

    A new line starts at the top: if it started at the end, behind a line that is still being written, both people would
    type at the same position.
    """
    return draft.index(typed) + len(typed)


class Desk:
    """One person: a member of the cluster with a replica of its objects."""

    def __init__(self, name: str, objects: Objects, cluster: whence.Cluster, live: Live) -> None:
        self.name = name
        self.cluster = cluster
        self.live = live
        self.page: Document = objects.document("poem")

    @classmethod
    async def open(cls, stack: AsyncExitStack, name: str, contacts: list[str], **more: Any) -> "Desk":
        objects = Objects()
        more |= {"order": "reliable", "state": objects.state, "restore": objects.restore}
        entry = whence.join("desk", contacts, **more) if contacts else whence.create("desk", **more)
        cluster = await stack.enter_async_context(entry)
        live = await stack.enter_async_context(Live(objects, cluster))
        return cls(name, objects, cluster, live)

    async def write(self, text: str) -> None:
        """Type it, a few characters at a time."""
        typed = ""
        async with self.cluster.publisher() as publisher:
            for piece in (text[i : i + 8] for i in range(0, len(text), 8)):
                at = place(self.page.draft, typed)
                typed += piece
                await self.live.publish(publisher, self.page.insert(at, piece))
                await asyncio.sleep(0.02)

    async def until(self, length: int) -> None:
        """Wait until the page has this many characters."""
        changes = self.live.changes(self.page)
        while len(self.page.text) < length:
            await anext(changes)


async def main() -> None:
    secret = os.urandom(32)
    length = sum(map(len, VERSES.values()))
    async with AsyncExitStack() as stack:
        desks: list[Desk] = []
        for name in VERSES:
            contacts = [desk.cluster.address for desk in desks]
            faults = Faults(0.05, seed=len(desks))
            desks.append(await Desk.open(stack, name, contacts, secret=secret, faults=faults))
        writing = asyncio.gather(*(desk.write(VERSES[desk.name]) for desk in desks))
        await desks[0].until(length // 2)
        late = await Desk.open(stack, "eve", [desks[0].cluster.address], secret=secret)
        print(f"Eve joins and sees:\n{late.page.text}\n...")
        await writing
        await asyncio.gather(*(desk.until(length) for desk in (*desks, late)))
        texts = {desk.name: desk.page.text for desk in (*desks, late)}
        assert len(set(texts.values())) == 1, texts
        assert sorted(late.page.text.splitlines(True)) == sorted(VERSES.values())
        print(f"In the end all {len(texts)} have:\n{late.page.text}")


if __name__ == "__main__":
    whence.run(main())
