"""What an application sees again after it was killed. The disk of a killed process is a copy of the directory, made
while it works: what was written is in it, and nothing else."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

import whence
from tests.live.net.live import collect, fast, several
from whence.errors import UsageError
from whence.testing import MemoryNetwork


class App:
    """Counts what it reads, and keeps that in memory."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def state(self) -> bytes:
        return b",".join(b"%d" % n for n in self.seen)

    def restore(self, state: bytes) -> None:
        self.seen = [int(n) for n in state.split(b",") if n]


async def test_what_was_processed_comes_again_marked_and_never_after_a_checkpoint(tmp_path: Path) -> None:
    net, first = MemoryNetwork(), App()
    common = {"transport": net, "settings": fast(), "order": "reliable"}
    async with several("lobby", 2, **common) as (a, b), a.publisher() as out:
        given = {"state": first.state, "restore": first.restore, "directory": tmp_path / "life"}
        async with whence.join("lobby", a.address, **common, **given) as c:
            events = c.events()
            for n in range(20):
                await out.publish(b"%d" % n)
                first.seen.append(int((await anext(events)).payload))
            shutil.copytree(tmp_path / "life", tmp_path / "killed")
            await c.checkpoint()
            shutil.copytree(tmp_path / "life", tmp_path / "killed later")
            await out.publish_many([b"20", b"21", b"22"])
            first.seen.append(int((await anext(events)).payload))
            await c.checkpoint()  # inside a frame
            shutil.copytree(tmp_path / "life", tmp_path / "killed last")
            c.abandon()
        for name, processed in (("killed", 0), ("killed later", 20), ("killed last", 21)):
            again = App()
            given = {"state": again.state, "restore": again.restore, "directory": tmp_path / name}
            async with whence.join("lobby", a.address, **common, **given) as c:
                assert again.seen == list(range(processed)), name
                read = await collect(c, 23 - processed)
                assert [int(event.payload) for event in read] == list(range(processed, 23))
                before = {"killed": 20, "killed later": 20, "killed last": 23}[name]
                assert [event.replayed for event in read] == [n < before for n in range(processed, 23)]
                c.abandon()
        assert not any(event.replayed for event in await collect(b, 23))


async def test_a_checkpoint_of_another_task_waits_until_the_reader_is_between_two_events(tmp_path: Path) -> None:
    app = App()
    common = {"transport": MemoryNetwork(), "settings": fast()}
    given = {"state": app.state, "restore": app.restore, "directory": tmp_path}
    async with several("lobby", 2, **common) as (a, _), whence.join("lobby", a.address, **common, **given) as c:

        async def read() -> None:
            async for event in c.events():
                await asyncio.sleep(1)  # a state taken here would lack an event that counts as processed
                app.seen.append(int(event.payload))

        reading = asyncio.create_task(read())
        async with a.publisher() as out:
            await out.publish(b"1")
        await c.wait_for(lambda: c.stats()["order.delivered"] == 1)
        await asyncio.sleep(0.2)
        await c.checkpoint()
        assert app.seen == [1]
        reading.cancel()
        with pytest.raises(UsageError, match="directory"):
            await a.checkpoint()
