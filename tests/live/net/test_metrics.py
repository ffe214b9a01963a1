"""What a process can be watched by: the text that Prometheus reads, the health that a load balancer asks for, and a
server that nobody can make busy."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

import whence
from whence.errors import UsageError
from whence.live import metrics
from whence.live.metrics import MetricsServer, ask, exposition, health
from whence.testing import MemoryNetwork

SAMPLE = re.compile(
    r'(?P<name>[a-z_]+)(\{(?P<labels>\w+="(?:[^"\\]|\\.)*"(?:,\w+="(?:[^"\\]|\\.)*")*)\})? (?P<value>\S+)'
)


class Fake:
    """A cluster as the metrics see it."""

    def __init__(self, name: str = "lobby", backlog: int = 0) -> None:
        self.name = name
        self.me = "127.0.0.1:1#5"
        self.order = "causal"
        self.may_publish = True
        self.backlog = backlog

    council = None
    clock = None

    def members(self) -> list[str]:
        return [self.me, "127.0.0.1:2#6"]

    def coordinators(self) -> dict[int, str]:
        return {3: self.me, 4: "127.0.0.1:2#6"}

    def stats(self) -> dict[str, int]:
        return {"order.delivered": 7, "members": 2, "net.shed": 1}

    def buffers(self) -> dict[str, tuple[int, int]]:
        return {"backlog": (self.backlog, 10), "B bytes": (3, 100)}


def parse(text: str) -> dict[tuple[str, str], float]:
    """Samples by name and labels; each family is announced before its samples, and no sample comes twice."""
    found: dict[tuple[str, str], float] = {}
    family = ""
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, family, kind = line.split(" ")
            assert kind in ("gauge", "counter", "histogram") and (kind != "counter" or family.endswith("_total"))
        elif not line.startswith("# HELP "):
            sample = SAMPLE.fullmatch(line)
            assert sample is not None, line
            assert re.fullmatch(rf"{family}(_bucket|_sum|_count)?", sample["name"]), line
            key = (sample["name"], sample["labels"] or "")
            assert key not in found, line
            found[key] = float(sample["value"])
    return found


def test_the_exposition_names_everything() -> None:
    found = parse(exposition([Fake(), Fake('q"\\\n')]))
    of = 'cluster="lobby"'
    assert found["whence_order_delivered_total", of] == 7 and found["whence_net_shed_total", of] == 1
    assert found["whence_members", of] == 2 and ("whence_members_total", of) not in found
    assert found["whence_buffer_fill", of + ',buffer="B bytes"'] == 3
    assert found["whence_buffer_bound", of + ',buffer="B bytes"'] == 100
    assert found["whence_may_publish", of] == 1 and found["whence_tickets_taken", of] == 2
    assert found["whence_members", r'cluster="q\"\\\n"'] == 2
    assert found["whence_healthy", ""] == 1 and found["process_cpu_seconds_total", ""] > 0


def test_health_says_why_not() -> None:
    assert health([Fake()])["ok"] is True
    ill = health([Fake(backlog=10)], [lambda: None, lambda: "no ticket"])
    assert ill["ok"] is False
    assert ill["reasons"] == ["lobby: the application is 10 events behind: frames are shed", "no ticket"]
    assert parse(exposition([Fake(backlog=10)]))["whence_healthy", ""] == 0


async def test_a_live_cluster_is_seen() -> None:
    network = MemoryNetwork()
    async with whence.create("lobby", transport=network) as cluster, cluster.publisher() as seat:
        await seat.publish(b"x")
        async with MetricsServer("127.0.0.1:0", [cluster]) as server:
            status, text = await ask(server.address, "/metrics")
            found = parse(text)
            assert status == 200 and found["whence_order_published_total", 'cluster="lobby"'] == 1
            shown = {name for name, _ in found}
            for key in cluster.stats():
                name = "whence_" + key.replace(".", "_")
                assert {name, f"{name}_total"} & shown, key
            status, text = await ask(server.address, "/health")
            said = json.loads(text)
            assert status == 200 and said["ok"] and said["clusters"]["lobby"]["ticket"] == seat.ticket


async def raw(address: str, request: bytes, end: bool = False) -> bytes:
    """All that comes back for these bytes."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    if end:
        writer.write_eof()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_it_serves_two_pages_and_nothing_else() -> None:
    async with MetricsServer("127.0.0.1:0", [Fake(backlog=11)]) as server:
        for request, answer in (
            (b"GET /health HTTP/1.1\r\n\r\n", b"HTTP/1.1 503 "),
            (b"GET /metrics?x=1 HTTP/1.0\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 "),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 "),
            (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
            (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 "),
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nabcde", b"HTTP/1.1 405 "),
            (b"\xff\xfe /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 "),
            (b"\r\n\r\n", b"HTTP/1.1 400 "),
            (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 10_000, b"HTTP/1.1 431 "),
        ):
            got = await raw(server.address, request)
            assert got.startswith(answer), request
            body = got.partition(b"\r\n\r\n")[2]
            assert bool(body) != request.startswith(b"HEAD")
        assert await raw(server.address, b"GET /metr", end=True) == b""


@pytest.mark.parametrize("idle", [16, 100])
async def test_idle_connections_keep_nobody_out(idle: int) -> None:
    async with MetricsServer("127.0.0.1:0", [Fake()]) as server:
        slow = [asyncio.create_task(raw(server.address, b"GET /metrics HT")) for _ in range(idle)]
        for _ in range(3):
            while len(server.listener.strangers) < metrics.MAX_REQUESTS // 2:
                await asyncio.sleep(0.001)
            assert (await raw(server.address, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            assert len(server.listener.strangers) <= metrics.MAX_REQUESTS
            slow.append(asyncio.create_task(raw(server.address, b"")))
        await asyncio.sleep(metrics.PATIENCE_S + 1)
        assert await asyncio.gather(*slow) == [b""] * len(slow)
        assert not server.listener.strangers


async def test_an_address_that_cannot_be_had() -> None:
    with pytest.raises(UsageError, match="host:port"):
        MetricsServer("nowhere", [])
    async with MetricsServer("127.0.0.1:0", []) as server:
        with pytest.raises(UsageError, match="cannot serve metrics: cannot listen on"):
            await MetricsServer(server.address, []).start()
    with pytest.raises(UsageError, match="not started"):
        _ = server.address
