"""Clusters without tickets, live: over a network in memory, over sockets, and from the shell."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import whence
from tests.live.net.live import LIMIT, assert_causal, collect, fast, say, several, until
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


async def test_a_late_joiner_gets_state_and_exactly_the_events_after_it() -> None:
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "settings": fast(), "trace": trace, "order": "probabilistic"}
    seen: list[bytes] = []
    async with several("free", 2, **common, contract=BIG, state=lambda: b" ".join(seen)) as (a, b):
        for i in range(5):
            await say(a, b"%d" % i)
        seen += [e.payload for e in await collect(a, 5)]
        await collect(b, 5)
        got: list[bytes] = []
        # its own contract is another one: it takes over the cluster's clock
        other = whence.Contract(entries=64, keys=2)
        joiner = {"contract": other, "restore": got.append, "state": lambda: got[0]}
        async with whence.join("free", [a.address], **common, **joiner) as c:
            assert got == [b"0 1 2 3 4"] and c.clock.size == (512, 4)
            await asyncio.gather(*(say(x, b"x") for x in (a, b, c)))
            assert sorted(e.payload for e in await collect(c, 3)) == [b"x"] * 3
    report = judge(trace.rows)
    assert report.ok and report.total.inverted == 0 and report.total.lost == 0


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


def test_from_the_shell(tmp_path: Path) -> None:
    """Three processes over sockets, two of which publish what comes in."""
    (tmp_path / "free.toml").write_text('[cluster]\norder = "probabilistic"\ncontract = { entries = 256, keys = 3 }\n')
    command = [sys.executable, "-m", "whence", "node", "--cluster", "free", "--insecure", "--json", "--publish"]
    command += ["--settings", str(tmp_path / "free.toml")]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    nodes: list[subprocess.Popen[str]] = []

    def start(*more: str) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        node = subprocess.Popen([*command, *more], text=True, env=env, **pipes)  # type: ignore[call-overload]
        nodes.append(node)
        return node

    try:
        first = start()
        assert first.stderr is not None
        address = json.loads(first.stderr.readline())["address"]
        others = [start("--contact", address) for _ in range(2)]
        for node in others:
            assert node.stderr is not None
            assert "metrics" in json.loads(node.stderr.readline())
        for i, node in enumerate(nodes):
            assert node.stdin is not None
            node.stdin.write(f"hello {i}\n")
            node.stdin.flush()
        for node in nodes:
            assert node.stdout is not None
            got = {json.loads(node.stdout.readline())["payload"] for _ in range(3)}
            assert got == {"hello 0", "hello 1", "hello 2"}
        for node in nodes:
            assert node.stdin is not None
            node.stdin.close()
        assert [node.wait(LIMIT) for node in nodes] == [0, 0, 0]
    finally:
        for node in nodes:
            with contextlib.suppress(ProcessLookupError):
                node.kill()
            node.wait()


def test_a_contract_on_the_command_line_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for bad, word in (("colour = 1", "colour"), ("target_error = 7", "target_error"), ("rate = 'fast'", "rate")):
        (tmp_path / "c.toml").write_text(f"[cluster]\ncontract = {{ {bad} }}\n")
        assert main(["node", "--cluster", "c", "--insecure", "--settings", str(tmp_path / "c.toml")]) == 2
        assert word in capsys.readouterr().err
