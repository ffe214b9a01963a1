"""What a process can be watched by: `GET /metrics` (Prometheus text), `GET /health` (JSON; 200 or 503 with reasons) and
`GET /status` (JSON: who is there, `net.status`).

Names: every counter of `Cluster.stats()`, such as `order.delivered`, is `whence_order_delivered_total{cluster="..."}`;
`GAUGES` are those that also fall, without `_total`. Besides, per cluster: `whence_info`, `whence_may_publish`,
`whence_tickets_taken`, `whence_council_voters`, `whence_council_missing`, `whence_council_may_lose`,
`whence_buffer_fill` and `whence_buffer_bound` (`{buffer="..."}`). Once per process: `whence_healthy`,
`process_cpu_seconds_total`, `process_max_resident_memory_bytes`, `process_start_time_seconds`. What to look at:
docs/live.md.

The server takes small requests, few at a time, each for a short time, and serves nothing else. There is no
authentication: bind it where only those who may know can reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self, cast

import msgspec

import whence
from whence.errors import UsageError
from whence.live.net.host import boot_ns
from whence.live.net.listener import Listener
from whence.live.net.status import ClusterStatus
from whence.live.net.transport import NetStats, parse_address, show_address

if TYPE_CHECKING:
    from whence.live.api import Cluster

MAX_REQUEST_BYTES: Final = 4096
MAX_REQUESTS: Final = 16
"""Requests under way at a time, half of them from one address: the oldest makes room. A few scrapers need no more, and
idle connections cost memory."""
PATIENCE_S: Final = 5.0
"""Seconds for a request to arrive and for its answer to be taken."""

FRESH_S: Final = 1.0
"""Seconds for which `/status` is the same: nobody makes this process ask all others all the time."""
TICKET_PATIENCE_S: Final = 15.0
"""Seconds without a ticket, though one is wanted, after which a node calls itself unwell."""

GAUGES: Final = frozenset(
    ("members", "held", "cut_off", "order.held_peak", "net.backlog_events", "net.backlog_bytes", "guard.sessions")
)
"""Numbers of `Cluster.stats()` that are no counters."""

_STARTED = time.time()


Check = Callable[[], str | None]
"""A reason why the process should not be relied on now, or None."""


def wishes(cluster: Cluster, contacts: bool, ticket: bool) -> list[Check]:
    """What a node wants and does not have: reasons for `/health`."""

    def alone() -> str | None:
        return None if len(cluster.members()) > 1 else f"{cluster.name}: knows no other member"

    def silenced() -> str | None:
        since = cluster.silent_since
        without = 0.0 if since is None else boot_ns() / 1e9 - since
        return f"{cluster.name}: no ticket for {without:.0f} s" if without > TICKET_PATIENCE_S else None

    return [check for check, on in ((alone, contacts), (silenced, ticket)) if on]


def exposition(clusters: Iterable[Cluster], checks: Iterable[Check] = ()) -> str:
    """The metrics of these clusters in Prometheus' text format, version 0.0.4."""
    clusters = {cluster.name: cluster for cluster in clusters}.values()
    families: dict[str, tuple[str, str, list[str]]] = {}

    def add(name: str, kind: str, help: str, value: float, suffix: str = "", **labels: str) -> None:
        said = ",".join(f'{k}="{_escape(v)}"' for k, v in labels.items())
        sample = f"{name}{suffix}{{{said}}} {+value!r}" if said else f"{name}{suffix} {+value!r}"
        families.setdefault(name, (kind, help, []))[2].append(sample)

    for cluster in clusters:
        of = {"cluster": cluster.name}
        about = {"member": cluster.me, "order": cluster.order, "version": whence.__version__}
        add("whence_info", "gauge", "Always 1.", 1, **of, **about)
        add("whence_may_publish", "gauge", "1 while this member holds a ticket.", cluster.may_publish, **of)
        taken = len(cluster.coordinators())
        add("whence_tickets_taken", "gauge", "Tickets whose owners are members, as far as known here.", taken, **of)
        council = cluster.council
        if council is not None:
            add("whence_council_voters", "gauge", "Voters of the council.", len(council.voters), **of)
            add("whence_council_missing", "gauge", "Voters that do not answer.", len(council.missing), **of)
            add("whence_council_may_lose", "gauge", "Voters that may be lost at once.", council.may_lose, **of)
        for key, number in cluster.stats().items():
            name = "whence_" + "".join(c if c.isalnum() else "_" for c in key)
            if key in GAUGES:
                add(name, "gauge", f"{key} of Cluster.stats().", number, **of)
            else:
                add(f"{name}_total", "counter", f"{key} of Cluster.stats().", number, **of)
        for key, measured in (cluster.clock.measured() if cluster.clock is not None else {}).items():
            add(f"whence_clock_{key}", "gauge", f"{key} of Cluster.clock.measured().", measured, **of)
        for buffer, (fill, room) in cluster.buffers().items():
            add("whence_buffer_fill", "gauge", "How much is in a bounded buffer.", fill, **of, buffer=buffer)
            add("whence_buffer_bound", "gauge", "How much fits into it.", room, **of, buffer=buffer)
    add("whence_healthy", "gauge", "1 when /health says so.", not any(reasons(clusters, checks)))
    add("process_cpu_seconds_total", "counter", "User and system time.", time.process_time())
    add("process_max_resident_memory_bytes", "gauge", "The most memory it ever had.", _max_rss())
    add("process_start_time_seconds", "gauge", "When it started, in seconds since 1970.", _STARTED)
    lines = []
    for name, (kind, help, samples) in families.items():
        lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}", *samples]
    return "\n".join(lines) + "\n"


def reasons(clusters: Iterable[Cluster], checks: Iterable[Check] = ()) -> Iterator[str]:
    """Why the process should not be relied on; nothing: it is well."""
    for cluster in clusters:
        fill, bound = cluster.buffers().get("backlog", (0, 1))
        if fill >= bound:
            yield f"{cluster.name}: the application is {fill} events behind: frames are shed"
    for check in checks:
        reason = check()
        if reason:
            yield reason


def health(clusters: Iterable[Cluster], checks: Iterable[Check] = ()) -> dict[str, object]:
    """What `/health` says: `ok`, `reasons`, and for people a few numbers of each cluster."""
    clusters = {cluster.name: cluster for cluster in clusters}.values()
    found = list(reasons(clusters, checks))
    return {"ok": not found, "reasons": found, "clusters": {c.name: _summary(c) for c in clusters}}


def _summary(cluster: Cluster) -> dict[str, object]:
    stats = cluster.stats()
    mine = [ticket for ticket, owner in cluster.coordinators().items() if owner == cluster.me]
    return {
        "me": cluster.me,
        "order": cluster.order,
        "members": len(cluster.members()),
        "ticket": mine[0] if mine and cluster.may_publish else None,
        "tickets_taken": len(cluster.coordinators()),
        **{
            name: stats.get(f"order.{name}", 0)
            for name in ("published", "delivered", "delivered_over_gap", "recovered")
        },
        "held": stats.get("held", 0),
        "backlog": stats.get("net.backlog_events", 0),
        "cpu_s": round(time.process_time(), 3),
    }


class ProcessStatus(msgspec.Struct, frozen=True):
    """What `/status` says."""

    ok: bool
    reasons: list[str]
    """As in `/health`."""
    clusters: list[ClusterStatus]


class MetricsServer:
    """Serves these pages: `async with MetricsServer("127.0.0.1:9464", [cluster]) as server`. Port 0 takes a free one
    (`address`). `clusters` may be a list that grows and shrinks while it runs; of each cluster one member is shown."""

    def __init__(
        self,
        listen: str,
        clusters: Sequence[Cluster],
        checks: Sequence[Check] = (),
    ) -> None:
        self.listen = listen
        self.clusters = clusters
        self.checks = checks
        most, each = MAX_REQUESTS, MAX_REQUESTS // 2
        self.listener = Listener(lambda: _Request(self), NetStats(), max_strangers=most, max_per_address=each)
        self._at = parse_address(listen)
        self._status: asyncio.Future[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        if not self.listener.address[1]:
            raise UsageError("the metrics server has not started")
        return show_address(*self.listener.address)

    async def start(self) -> None:
        """Raises UsageError if the address cannot be had."""
        try:
            await self.listener.start(*self._at)
        except UsageError as error:
            raise UsageError(f"cannot serve metrics: {error}") from None

    async def close(self) -> None:
        for task in self.listener.close():
            await asyncio.wait([task])
        for request in list(self.listener.strangers):
            request.close()
        self.listener.address = ("", 0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def answer(self, head: bytes) -> bytes | asyncio.Future[bytes]:
        """To a request that begins with these lines; a body is not read. `/status` takes a moment."""
        first = head.split(b"\r\n", 1)[0]
        words = first.split(b" ")
        if len(head) > MAX_REQUEST_BYTES:
            return _refusal(431)
        if len(words) != 3 or not words[2].startswith(b"HTTP/1.") or not first.isascii():
            return _refusal(400)
        method, path = words[0].decode(), words[1].decode().partition("?")[0]
        if path not in ("/metrics", "/health", "/status"):
            return _response(404, "text/plain", "there are /metrics, /health and /status\n")
        if method not in ("GET", "HEAD"):
            return _response(405, "text/plain", "GET it\n", "Allow: GET, HEAD\r\n")
        if path == "/status":
            if self._status is None:  # members are asked once for all who want to know, and once in a while
                self._status = asyncio.ensure_future(self._ask_all())
                self._status.get_loop().call_later(FRESH_S, setattr, self, "_status", None)
            return self._status
        if path == "/metrics":
            text = exposition(self.clusters, self.checks)
            answer = _response(200, "text/plain; version=0.0.4; charset=utf-8", text)
        else:
            found = health(self.clusters, self.checks)
            answer = _response(
                200 if found["ok"] else 503, "application/json", msgspec.json.encode(found).decode() + "\n"
            )
        return answer if method == "GET" else answer.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    async def _ask_all(self) -> bytes:
        """What `/status` says."""
        ill = list(reasons(self.clusters, self.checks))
        found = [await cluster.status() for cluster in self.clusters]
        said = ProcessStatus(not ill, ill, found)
        return _response(200, "application/json", msgspec.json.encode(said).decode() + "\n")


class _Request(asyncio.Protocol):
    """A connection to the server."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._head = b""
        self._transport: asyncio.Transport | None = None
        self._asked = False
        self._over = asyncio.get_running_loop().call_later(PATIENCE_S, self.close)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self not in self._server.listener.strangers:  # it had to make room
            self.close()

    def data_received(self, data: bytes) -> None:
        self._head += data
        head, whole, _ = self._head.partition(b"\r\n\r\n")
        if not self._asked and (whole or len(head) > MAX_REQUEST_BYTES):
            self._asked = True
            answer = self._server.answer(head)
            if isinstance(answer, bytes):
                self._write(answer)
            else:
                answer.add_done_callback(lambda done: self._write(done.result()))

    def _write(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def close(self) -> None:
        """No more of it: whoever asks slowly, or not at all, gets no answer."""
        self._over.cancel()
        self._server.listener.gone(self)
        if self._transport is not None:
            self._transport.abort()


def _refusal(status: int) -> bytes:
    return _response(status, "text/plain", HTTPStatus(status).phrase + "\n")


def _response(status: int, kind: str, text: str, more: str = "") -> bytes:
    body = text.encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"{more}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


async def ask(address: str, path: str = "/health", timeout: float = PATIENCE_S) -> tuple[int, str]:
    """Status and body of a GET to such a server. Raises OSError or TimeoutError if there is none."""
    async with asyncio.timeout(timeout):
        host, port = parse_address(address)
        reader, writer = await asyncio.open_connection(host, port, limit=1 << 22)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            return int(head.split(b" ", 2)[1]), (await reader.read(1 << 22)).decode()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
            raise ConnectionError(f"{address} does not answer in HTTP") from None
        finally:
            with contextlib.suppress(OSError):
                writer.close()


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _max_rss() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
