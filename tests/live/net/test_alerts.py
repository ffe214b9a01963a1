"""Every alert in docs/operations.md fires: each is provoked in a real cluster and seen in what /metrics serves."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import FAST, Members, run, say, until
from whence.live.metrics import TICKET_PATIENCE_S, exposition, health, wishes
from whence.testing import MemoryNetwork

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
ALERTS = re.findall(r"^\| `(whence_\w+)`", PAGE.partition("## Watch")[2].partition("\n## ")[0], re.M)


def metric(cluster: whence.Cluster, name: str, *checks: Any, **labels: str) -> float:
    """One sample of /metrics."""
    said = "".join(f',{key}="{value}"' for key, value in labels.items())
    of = "" if name == "whence_healthy" else f'{{cluster="x"{said}}}'
    found = re.findall(rf"^{re.escape(name + of)} (\S+)$", exposition([cluster], checks), re.M)
    return float(found[0])


async def healthy() -> None:
    """Without a ticket: from its loss on, not from the start of the process."""
    async with Members() as x:
        a, b, c = [await x.add() for _ in range(3)]
        checks = wishes(a, False, True)
        assert metric(a, "whence_healthy", *checks) == 1
        await until(lambda: a.council is not None and len(a.council.voters) == 3, "three voters")
        b.abandon()
        c.abandon()
        await until(lambda: not a.may_publish, "the loss")
        assert metric(a, "whence_healthy", *checks) == 1  # it may be back at once
        await until(lambda: metric(a, "whence_healthy", *checks) == 0, "the alert")
        [reason] = health([a], checks)["reasons"]  # type: ignore[misc]
        seconds = float(re.findall(r"x: no ticket for (\d+) s", reason)[0])
        assert TICKET_PATIENCE_S <= seconds < TICKET_PATIENCE_S + 2


async def members() -> None:
    async with Members() as x:
        a, b, c = [await x.add() for _ in range(3)]
        await until(lambda: {metric(m, "whence_members") for m in (a, b, c)} == {3}, "all know each other")
        x.cut(c)
        await until(lambda: metric(a, "whence_members") == 2 and metric(c, "whence_members") == 1, "the alert")
        x.network.heal()
        await until(lambda: {metric(m, "whence_members") for m in (a, b, c)} == {3}, "it heals by itself")


async def tickets_taken() -> None:
    async with Members() as x:
        a, b, c = [await x.add() for _ in range(3)]
        await until(lambda: metric(a, "whence_tickets_taken") == 3, "three coordinators")
        await until(lambda: a.council is not None and len(a.council.voters) == 3, "three voters")
        b.abandon()
        c.abandon()
        await until(lambda: metric(a, "whence_tickets_taken") == 0, "the alert")
        assert metric(a, "whence_may_publish") == 0
        with pytest.raises(whence.NoTicket, match=r"2 of 3 voters do not answer, .*A lost ring"):
            async with a.publisher(timeout=1) as publisher:
                await publisher.publish(b"x")


async def council_may_lose() -> None:
    async with Members() as x:
        a, _, c = [await x.add() for _ in range(3)]
        await until(lambda: metric(a, "whence_council_may_lose") == 1, "three voters")
        c.abandon()
        await until(lambda: metric(a, "whence_council_voters") == 2, "the council goes on without it")
        assert metric(a, "whence_council_may_lose") == 0 and a.may_publish


async def _lost_cause(x: Members, order: Any) -> whence.Cluster:
    """Somebody publishes while nobody hears it, publishes again, and dies: its second event waits for the first."""
    for _ in range(3):
        await x.add()
    reader = await x.add(False, order=order)
    publisher = await x.add()
    x.cut(publisher)
    await x.publishers[-1].publish(b"cause")
    await asyncio.sleep(0)  # it leaves, in vain
    x.network.heal()
    await x.publishers[-1].publish(b"effect")
    await until(lambda: metric(reader, "whence_held") > 0, "the effect is held back")
    publisher.abandon()
    return reader


async def skipped() -> None:
    async with Members(settings={**FAST, "time_to_terminate": 20.0}) as x:
        reader = await _lost_cause(x, "causal")
        await until(lambda: metric(reader, "whence_order_skipped_total") > 0, "the alert")


async def held() -> None:
    async with Members(settings={**FAST, "time_to_terminate": 20.0}) as x:
        reader = await _lost_cause(x, "reliable")
        assert metric(reader, "whence_held") > 0
        assert reader.stats()["order.skipped"] == 0


async def shed() -> None:
    """It has begun to read, and stopped."""
    async with Members() as x:
        a = await x.add()
        slow = await x.add(False, settings={"queue_events": 8})
        reader = slow.events()
        await say(a, b"first")
        await anext(reader)
        for _ in range(40):
            await say(a, b"more")
        await until(lambda: metric(slow, "whence_net_shed_total") > 0, "the alert")


async def unread() -> None:
    """It never reads."""
    async with Members() as x:
        a = await x.add()
        deaf = await x.add(False, settings={"queue_events": 8})
        for _ in range(40):
            await say(a, b"more")
        await until(lambda: metric(deaf, "whence_net_unread_total") > 0, "the alert")


async def buffer() -> None:
    async with Members(settings={**FAST, "buffer": 16}) as x:
        a = await x.add()
        b = await x.add(False)
        for _ in range(60):
            await say(a, b"more than was planned for")

        def fill() -> float:
            return metric(b, "whence_buffer_fill", buffer="B") / metric(b, "whence_buffer_bound", buffer="B")

        await until(lambda: fill() > 0.9, "the alert")


async def unauthentic() -> None:
    network = MemoryNetwork()
    async with whence.create("x", transport=network, secret=b"a" * 32) as a:
        with pytest.raises(whence.NotJoined):
            async with whence.join("x", a.address, transport=network, secret=b"b" * 32, timeout=2):
                pass
        assert metric(a, "whence_net_unauthentic_total") > 0


async def excluded() -> None:
    async with Members() as x:
        clusters = [await x.add() for _ in range(4)]
        clusters[-1].abandon()
        await until(lambda: sum(metric(c, "whence_ring_excluded_total") for c in clusters[:-1]) > 0, "the alert")


PROVOKED: dict[str, Callable[[], Awaitable[None]]] = {
    "whence_healthy": healthy,
    "whence_members": members,
    "whence_tickets_taken": tickets_taken,
    "whence_council_may_lose": council_may_lose,
    "whence_order_skipped_total": skipped,
    "whence_held": held,
    "whence_net_shed_total": shed,
    "whence_net_unread_total": unread,
    "whence_buffer_fill": buffer,
    "whence_net_unauthentic_total": unauthentic,
    "whence_ring_excluded_total": excluded,
}


def test_every_alert_of_the_page_is_provoked() -> None:
    assert list(PROVOKED) == ALERTS


@pytest.mark.parametrize("name", PROVOKED)
def test_it_fires(name: str) -> None:
    run(PROVOKED[name]())  # type: ignore[arg-type]
