"""Clusters without tickets, live: over a network in memory, over sockets, and from the shell."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import whence
from tests.live.net.live import assert_causal, collect, fast, say, several, until
from whence.audit.judge import judge
from whence.audit.trace import MemoryTrace
from whence.cli import main
from whence.core.ports import Contracted
from whence.errors import ConfigError, UsageError
from whence.live.metrics import exposition
from whence.testing import Faults, MemoryNetwork

BIG = whence.Contract(entries=512, keys=4, move=False)


async def test_everybody_publishes_at_once_without_a_ticket() -> None:
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "settings": fast(), "trace": trace, "order": "probabilistic", "contract": BIG}
    async with several("free", 3, **common) as (a, b, c):
        assert a.clock.size == c.clock.size == (512, 4) and a.may_publish and a.coordinators() == {}
        first = await say(a, b"question")
        [seen] = await collect(b, 1)
        assert (seen.id, seen.payload, seen.origin) == (first, b"question", a.me)
        async with b.publisher() as seat:  # granted at once: nobody is asked
            assert seat.ticket is None
            second = await seat.publish(b"answer")
        for cluster in (a, c):
            events = await collect(cluster, 2)
            assert [e.id for e in events] == [first, second] and not any(e.alert or e.over_gap for e in events)
        await asyncio.gather(*(say(x, *(b"%d" % i for i in range(30))) for x in (a, b, c)))
        for cluster in (a, b, c):
            await collect(cluster, 90 + (cluster is b))
        assert str(a.why_blocked(first)).endswith("delivered")
        assert {"order.alerts_covered", "order.alerts_witnessed", "order.raised"} <= set(a.stats())
        assert a.clock.measured()["entries"] == 512 and a.clock.measured()["frames_seen"] > 0
        assert 'whence_clock_in_flight{cluster="free"}' in exposition([a])
    assert_causal(trace)
    report = judge(trace.rows)
    assert report.total.inverted == 0 and report.total.lost == 0 and report.published == 92
    assert all(r.ticket is None for r in trace.rows if r.kind == "publish")


async def test_another_size_without_stopping() -> None:
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "settings": fast(), "trace": trace, "order": "probabilistic", "contract": BIG}
    async with several("free", 3, **common) as (a, b, c):
        for i in range(60):
            await say((a, b, c)[i % 3], b"%d" % i)
            if i == 20:
                b.clock.move(300, 3)
            if i == 40:
                a.clock.move(700, 5)
                c.clock.move(600, 4)  # at the same time: one of them wins, everywhere
        for cluster in (a, b, c):
            await collect(cluster, 60)
        for cluster in (a, b, c):
            await say(cluster, b"last")
        for cluster in (a, b, c):
            await collect(cluster, 3)
        assert a.clock.size == b.clock.size == c.clock.size in ((700, 5), (600, 4))
    report = judge(trace.rows)
    assert report.ok and report.total.inverted == 0 and report.total.lost == 0
    assert len([r for r in trace.rows if r.kind == "clock" and "generation" in (r.reason or "")]) >= 6


async def test_the_application_is_told_of_alerts_and_of_a_broken_contract() -> None:
    """A clock far too small for what three busy members send over a network that loses."""
    net, alerts, said = MemoryNetwork(), [], []
    tiny = whence.Contract(entries=2, keys=1, rate=1, delay=0.001, move=True)
    common = {"transport": net, "settings": fast(), "order": "probabilistic", "contract": tiny}
    common |= {"on_alert": alerts.append, "on_contract": said.append, "faults": Faults(0.05, seed=3)}
    async with several("free", 3, **common) as (a, b, c):

        async def busy(cluster: whence.Cluster) -> None:
            while True:
                await say(cluster, b"x")
                await asyncio.sleep(0.0005)

        async def read(cluster: whence.Cluster) -> None:
            async for event in cluster.events():
                assert (event.alert == "likely") == bool(event.suspects)

        tasks = [asyncio.create_task(f(x)) for x in (a, b, c) for f in (busy, read)]
        await until(lambda: any(s.broken for s in said) and alerts, "broken, and an alert")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        broken = next(x.clock.contract for x in (a, b, c) if x.clock.contract is not None)
        assert isinstance(broken, Contracted) and broken.promise == tiny.promise < broken.bound
        assert all(e.alert == "likely" and e.suspects and "/" in e.suspects[0] for e in alerts)
        assert sum(x.stats()["order.alerts_witnessed"] for x in (a, b, c)) >= len(alerts) >= 1


async def test_the_wrong_kind_of_cluster_is_a_named_refusal() -> None:
    net = MemoryNetwork()
    common = {"transport": net, "settings": fast()}
    async with whence.create("free", **common, order="probabilistic") as free, whence.create("ring", **common) as ring:
        with pytest.raises(UsageError, match="no tickets"):
            async with whence.join("free", [free.address], **common):
                pass
        with pytest.raises(UsageError, match="tickets"):
            async with whence.join("ring", [ring.address], **common, order="probabilistic"):
                pass
        assert ring.clock is None and free.clock is not None
    for order in ("causal", "reliable"):
        with pytest.raises(ConfigError, match="without tickets"):
            whence.create("free", **common, order=order, contract=BIG)


def test_a_contract_on_the_command_line_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for bad, word in (("colour = 1", "colour"), ("target_error = 7", "target_error"), ("rate = 'fast'", "rate")):
        (tmp_path / "c.toml").write_text(f"[cluster]\ncontract = {{ {bad} }}\n")
        assert main(["node", "--cluster", "c", "--insecure", "--settings", str(tmp_path / "c.toml")]) == 2
        assert word in capsys.readouterr().err
