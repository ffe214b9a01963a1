"""Total order live: `order="total"`, `publish(..., settled=True)`, `event.place`, and what is refused."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import whence
from tests.live.net.live import collect, fast, several
from tests.ports import free_ports
from whence.errors import ConfigError, UsageError
from whence.testing import MemoryNetwork

ROOT = Path(__file__).parents[3]


async def test_all_members_deliver_one_sequence_and_a_publisher_learns_its_place() -> None:
    common = {"transport": MemoryNetwork(), "settings": fast(), "order": "total", "tickets": 3}
    async with several("one", 3, **common) as members:
        await members[0].wait_for(lambda: len(members[0].members()) == 3, 30)

        async def publish(cluster: whence.Cluster) -> list[str]:
            async with cluster.publisher() as publisher:
                return [await publisher.publish(b"x", settled=True, timeout=60) for _ in range(10)]

        ids = await asyncio.gather(*map(publish, members))
        read = await asyncio.gather(*(collect(cluster, 30) for cluster in members))
        assert {name for own in ids for name in own} == {event.id for event in read[0]}
        for events in read:
            assert [(e.place, e.id) for e in events] == [(n, e.id) for n, e in enumerate(read[0], 1)]


async def test_other_orders_see_the_same_stream_and_cut_off_voters_stop_only_total_order() -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast(), "tickets": 3, "total": True}
    async with (
        whence.create("mixed", **common, order="total") as a,
        whence.join("mixed", [a.address], **common, order="total") as b,
        whence.join("mixed", [a.address], **common) as c,
        a.publisher() as publisher,
        c.publisher() as other,
    ):
        await a.wait_for(lambda: len(a.council.voters) == 2 and len(a.members()) == 3, 60)  # type: ignore[union-attr]
        await publisher.publish(b"1", settled=True, timeout=60)
        (event,) = await collect(c, 1)
        assert event.place is None and c.order == "causal"
        await other.publish(b"2")
        await collect(b, 2)
        net.cut([a.address], [b.address, c.address])  # the first of two voters: b alone is no quorum
        await other.publish(b"3")
        assert (await collect(c, 2))[-1].payload == b"3", "causal members wait for no quorum"
        await b.wait_for(lambda: bool(b.waits_for), 60)
        assert (await b.status()).waits == b.waits_for
        net.heal()
        await publisher.publish(b"4", settled=True, timeout=60)
        assert b"4" in {(await collect(b, 1))[0].payload for _ in range(2)}


async def test_what_cannot_be_kept_is_refused_by_name() -> None:
    common = {"transport": MemoryNetwork(), "settings": fast()}
    with pytest.raises(ConfigError, match="order='total'"):
        whence.create("none", **common, total=True)
    with pytest.raises(ConfigError, match="needs ring council"):
        whence.create("none", transport=MemoryNetwork(), order="total", settings={"ring": "neighbours"})
    async with whence.create("plain", **common) as plain, plain.publisher() as publisher:
        with pytest.raises(UsageError, match="total order"):
            await publisher.publish(b"x", settled=True)
        with pytest.raises(UsageError, match="tickets and total order"):
            async with whence.join("plain", [plain.address], **common, order="total"):
                pass


def places(file: Path) -> dict[int, str]:
    """What a process has delivered, by place; a killed one may have written half a line."""
    lines = file.read_text().splitlines(keepends=True) if file.exists() else []
    return {int(place): name for place, name in (line.split() for line in lines if line.endswith("\n"))}


def test_processes_killed_with_9_leave_one_sequence(tmp_path: Path) -> None:
    """Four processes publish; one that votes and owns a ticket is killed. Whoever lives goes on."""
    ports = free_ports(4)
    files = [tmp_path / f"{n}.txt" for n in range(4)]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for n, port in enumerate(ports):
            contacts = [f"127.0.0.1:{ports[0]}"] if n else []
            told = [f"127.0.0.1:{port}", str(files[n]), *contacts]
            command = [sys.executable, "-m", "tests.live.api.total_child", *told]
            running.append(subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL))
        wait_for(lambda: all(len(places(file)) >= 20 for file in files))
        running[1].kill()
        before = max(max(places(file), default=0) for file in files)
        wait_for(lambda: all(max(places(files[n]), default=0) > before + 20 for n in (0, 2, 3)))
    finally:
        for process in running:
            process.kill()
            process.wait()
    agreed: dict[int, str] = {}
    for file in files:
        mine = places(file)
        assert list(mine) == list(range(min(mine), max(mine) + 1)), "no place is left out"
        assert all(agreed.setdefault(place, name) == name for place, name in mine.items())
    assert len(set(agreed.values())) == len(agreed)


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "not within two minutes"
        time.sleep(0.05)
