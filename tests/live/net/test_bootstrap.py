"""The same list of peers everywhere: exactly one founds, whatever is started again and whichever disk is lost; and
members whose settings differ are told so, on both sides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import run
from whence.testing import MemoryNetwork

PEERS = ["127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003"]


class Machines:
    """Three machines with the same configuration."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.network = MemoryNetwork()
        self.up: dict[str, tuple[AsyncExitStack, whence.Cluster, whence.Publisher]] = {}

    async def start(self, *which: str, peers: Sequence[str] = PEERS, **options: Any) -> None:
        await asyncio.gather(*(self._start(peer, peers, **options) for peer in which))

    async def _start(self, peer: str, peers: Sequence[str], **options: Any) -> None:
        stack = AsyncExitStack()
        joined = whence.bootstrap(
            "x", peers, peer, transport=self.network, directory=self.home / peer[-1], order="reliable", **options
        )
        cluster = await stack.enter_async_context(joined)
        publisher = await stack.enter_async_context(cluster.publisher())
        self.up[peer] = stack, cluster, publisher

    async def power_cut(self, *which: str) -> None:
        """Gone without a word, all at once."""
        for peer in which:
            self.up[peer][1].abandon()
        for peer in which:
            await self.up.pop(peer)[0].aclose()

    async def stop(self) -> None:
        for stack, _, _ in list(self.up.values())[::-1]:
            await stack.aclose()

    def founders(self) -> list[str]:
        return [peer for peer, (_, cluster, _) in self.up.items() if cluster.created]

    async def talk(self, text: str) -> list[str]:
        """Everybody publishes; returns the ids, when everybody has seen all of them."""
        ids = [await publisher.publish(f"{text} {peer}".encode()) for peer, (_, _, publisher) in self.up.items()]
        for _, cluster, _ in self.up.values():
            seen: set[str] = set()
            async for event in cluster.events():
                seen.add(event.id)
                if seen >= set(ids):
                    break
        return ids


async def _machines(home: Path, lost: tuple[str, ...]) -> None:
    machines = Machines(home)
    await machines.start(*PEERS)
    assert machines.founders() == PEERS[:1]
    before = await machines.talk("before")
    await machines.power_cut(*PEERS)
    for peer in lost:
        for file in (home / peer[-1]).iterdir():
            file.unlink()
    await machines.start(*PEERS)
    assert len(machines.founders()) == 1
    remember = [peer for peer in PEERS if peer not in lost]
    assert machines.founders()[0] in (remember or PEERS)
    after = await machines.talk("after")
    assert not set(before) & set(after) or not remember  # no id is used twice while one disk remembers
    await machines.stop()


@pytest.mark.parametrize("lost", [(), (PEERS[0],), (PEERS[0], PEERS[1]), tuple(PEERS)])
def test_first_start_total_restart_and_lost_disks(tmp_path: Path, lost: tuple[str, ...]) -> None:
    run(_machines(tmp_path, lost))


async def test_a_node_that_is_started_again_joins(tmp_path: Path) -> None:
    """Also the one that founded: the ring lives at the other two."""
    machines = Machines(tmp_path)
    await machines.start(*PEERS)
    await machines.talk("one")
    await machines.up.pop(PEERS[0])[0].aclose()
    await machines.start(PEERS[0])
    assert machines.founders() == []
    await machines.talk("two")
    await machines.stop()


async def test_a_machine_that_is_gone_for_good_is_taken_out_of_the_lists(tmp_path: Path) -> None:
    machines = Machines(tmp_path)
    await machines.start(*PEERS)
    before = await machines.talk("one")
    await machines.power_cut(*PEERS)
    await machines.start(*PEERS[:2], peers=PEERS[:2])
    assert len(machines.founders()) == 1
    assert not set(before) & set(await machines.talk("two"))
    await machines.stop()


async def test_a_listed_node_that_is_started_again_heals_a_lost_ring(tmp_path: Path) -> None:
    """Two of three are killed at once: the third loses its ticket. Both are started again; one founds the ring."""
    machines = Machines(tmp_path)
    await machines.start(*PEERS)
    await machines.talk("one")
    left = machines.up[PEERS[0]][1]
    await left.wait_for(lambda: left.council is not None and len(left.council.voters) == 3)
    await machines.power_cut(*PEERS[1:])
    await left.wait_for(lambda: not left.may_publish)
    await machines.start(*PEERS[1:])
    await machines.talk("two")
    await machines.stop()


async def test_nobody_founds_while_a_peer_is_silent(tmp_path: Path) -> None:
    """It may be on the other side of a partition, with a ring. The error names it and says what to do."""
    machines = Machines(tmp_path)
    with pytest.raises(whence.NotJoined, match=r"no answer from 127\.0\.0\.1:7003\. .*take it out of every list"):
        await machines.start(*PEERS[:2], timeout=1.5)


def test_a_node_that_is_not_in_its_list_is_told() -> None:
    async def main() -> None:
        async with whence.bootstrap("x", PEERS, "127.0.0.1:7009", transport=MemoryNetwork()):
            pass

    with pytest.raises(whence.UsageError, match=r"lacks this node, 127\.0\.0\.1:7009"):
        run(main())
    with pytest.raises(whence.UsageError, match="names one twice"):
        whence.bootstrap("x", [PEERS[0], PEERS[0]], PEERS[0], transport=MemoryNetwork())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tickets": 4}, "tickets is {0} here and {1} at"),
        ({"settings": {"mechanism": "interval"}}, "mechanism is {0} here and {1} at"),
    ],
)
def test_settings_that_cannot_work_together_are_named_on_both_sides(
    options: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"tickets": ("4", "8"), "mechanism": ("interval", "tickets")}
    here, there = values[said.split(" ")[0]]

    async def main() -> None:
        async with whence.create("x", insecure=True) as first:
            with pytest.raises(whence.UsageError, match=said.format(here, there) + f" {first.address}"):
                async with whence.join("x", first.address, insecure=True, **options):
                    pass

    with caplog.at_level(logging.WARNING, "whence.live.net"):
        run(main())
    assert any(said.format(there, here) in line for line in caplog.messages), caplog.messages


def test_settings_that_only_cost_something_are_logged_on_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with (
            whence.create("x", insecure=True) as first,
            whence.join("x", first.address, insecure=True, settings={"fanout": 3}) as second,
        ):
            assert len(second.members()) == 2

    with caplog.at_level(logging.WARNING, "whence.live.net"):
        run(main())
    assert sum("settings differ: fanout is" in line for line in caplog.messages) == 2, caplog.messages
