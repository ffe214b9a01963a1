"""Broadcast among 4 processes on loopback: ours next to a plain mesh, pyzmq and NATS in the same run, and the goals.

Ours with causal order, recovery and authentication on. What others publish counts, own events do not. Figures of a busy
machine are noise; the ratios of one run count.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from bench.peers.worker import Job

from whence.live.fleet.process import Child, Children

MEMBERS = 4
BATCH, LARGE = 20, 200
"""Events that the application hands over at a time under saturating load: a frame of the mesh, a message of pyzmq, what
NATS is given before a flush, a `publish_many` of ours. How large our frames are is our own business: a saturating load
is `LARGE` at a time, and a row beside it says what `BATCH` at a time costs."""
QUIET_RATE = 200.0
LIMIT_S = 60.0
ROOT = Path(__file__).parent.parent

Row = dict[str, Any]


async def _measure(peer: str, job: Job, attacked: bool = False) -> list[dict[str, Any]]:
    """The figures of each process; `attacked`: with strangers at all of their sockets meanwhile."""
    async with Children[Child]() as group:
        peers = [group.add(Child(f"{peer} {i}", f"bench.peers.{peer}", cwd=ROOT)) for i in range(job.members)]
        jobs = [msgspec.structs.replace(job, number=number) for number in range(job.members)]
        addresses = await group.together(p.start(mine, LIMIT_S) for p, mine in zip(peers, jobs, strict=True))
        await group.ask("connect", addresses=addresses, timeout=LIMIT_S)
        if attacked:
            await group.add(Child("attack", "bench.peers.attack", cwd=ROOT)).start(addresses)
        found = await group.together(p.ask("go", timeout=LIMIT_S + job.seconds) for p in peers)
        await group.kill()  # no need to wait until all have left
        return found


def best(what: str, peer: str, **job: Any) -> Row:
    """The better of two runs, so that ratios depend less on other load."""
    rows = [measure(what, peer, **job) for _ in range(2)]
    return max(rows, key=lambda row: row["deliveries_per_s"])


def measure(what: str, peer: str, more_cpu: Any = None, attacked: bool = False, **job: Any) -> Row:
    """One row. `more_cpu`: the CPU seconds so far of something that takes part besides the processes."""
    before = more_cpu() if more_cpu else 0.0
    found = asyncio.run(_measure(peer, Job(number=0, members=MEMBERS, **job), attacked))
    extra = (more_cpu() - before) * job["seconds"] / (job["seconds"] + 1.0) if more_cpu else 0.0
    delivered = sum(f["delivered"] for f in found)
    failed = [f["failed"] for f in found if f["failed"]]
    row: Row = {"what": what}
    if failed:
        row["failed"] = failed[0]
    late = sorted(ns for f in found for ns in f["late"])
    if late:
        row["p50_us"] = round(late[len(late) // 2] / 1e3)
        row["p99_us"] = round(late[int(len(late) * 0.99)] / 1e3)
        row["samples"] = len(late)
    else:
        row["deliveries_per_s"] = round(delivered / max(f["seconds"] for f in found))
    row["cpu_us_per_delivery"] = round((sum(f["cpu_s"] for f in found) + extra) / max(1, delivered) * 1e6, 3)
    if not late:
        # On a busy machine CPU per delivery is more meaningful than throughput.
        row["cores_used"] = round(sum(f["cpu_s"] / f["seconds"] for f in found) + extra / found[0]["seconds"], 2)
        row["cores_idle"] = round(found[0]["idle_s"] / found[0]["seconds"], 2)
    row["rss_mb"] = round(max(f["rss_mb"] for f in found), 1)
    for f in found:
        for name, n in f.get("stats", {}).items():
            row[name] = row.get(name, 0) + n
    return row


# -- peers that may be missing ---------------------------------------------------------------------------------------


@contextmanager
def nats_server() -> Iterator[tuple[str, Any]]:
    """A broker on loopback for as long as the block lasts: its address, and how much CPU it has used."""
    binary = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")
    assert binary is not None
    with socket.socket() as probe, tempfile.TemporaryDirectory() as home:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [binary, "-a", "127.0.0.1", "-p", str(port), "-l", f"{home}/log"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline:
                with socket.socket() as ready:
                    if ready.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.05)
            yield f"nats://127.0.0.1:{port}", lambda: _cpu_of(server.pid)
        finally:
            server.terminate()
            server.wait()


COROSYNC = """\
totem {{
  version: 2
  cluster_name: bench
  transport: udpu
  crypto_cipher: none
  crypto_hash: none
}}
nodelist {{
  node {{
    ring0_addr: 127.0.0.1
    name: here
    nodeid: 1
  }}
}}
logging {{
  to_stderr: yes
  to_syslog: no
}}
system {{
  state_dir: {home}
}}
"""


@contextmanager
def corosync() -> Iterator[Any]:
    """The daemon for as long as the block lasts: how much CPU it has used. Needs root."""
    with tempfile.TemporaryDirectory() as home:
        config = Path(home) / "corosync.conf"
        config.write_text(COROSYNC.format(home=home), encoding="ascii")
        with subprocess.Popen(["corosync", "-f", "-c", str(config)], stderr=subprocess.DEVNULL) as daemon:
            try:
                time.sleep(2.0)
                if daemon.poll() is not None:
                    raise RuntimeError(f"corosync ended with {daemon.returncode}")
                yield lambda: _cpu_of(daemon.pid)
            finally:
                daemon.terminate()


def _total(seconds: float) -> Iterator[Row]:
    what = "total-order group (corosync)"
    if shutil.which("corosync") is None or os.geteuid() != 0:
        yield {"what": what, "skipped": "corosync (Debian: corosync libcpg4) is not installed, or we are not root"}
        return
    with corosync() as cpu:
        yield best(what, "total", more_cpu=cpu, batch=LARGE, seconds=seconds)


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peers(seconds: float) -> Iterator[Row]:
    yield best("plain mesh, 20 events a frame", "mesh", batch=BATCH, seconds=seconds)
    yield measure("plain mesh, 200 events a frame", "mesh", batch=LARGE, seconds=seconds)
    yield measure("plain mesh, 1 event a frame", "mesh", batch=1, seconds=seconds)
    yield measure("plain mesh, 200 events/s", "mesh", rate=QUIET_RATE / MEMBERS, seconds=seconds)
    if importlib.util.find_spec("zmq") is None:
        yield {"what": "pyzmq PUB/SUB", "skipped": "pyzmq is not installed"}
    else:
        yield measure("pyzmq PUB/SUB, 20 a message", "pubsub", batch=BATCH, seconds=seconds)
        yield measure("pyzmq PUB/SUB, 200 events/s", "pubsub", rate=QUIET_RATE / MEMBERS, seconds=seconds)
    has_server = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")
    if importlib.util.find_spec("nats") is None or not has_server:
        yield {"what": "NATS with nats-py", "skipped": "nats-py (pip) or nats-server (Debian) is not installed"}
        return
    with nats_server() as (server, cpu):
        yield measure("NATS with nats-py", "broker", cpu, batch=LARGE, seconds=seconds, server=server)
        yield measure(
            "NATS with nats-py, 200 events/s", "broker", rate=QUIET_RATE / MEMBERS, seconds=seconds, server=server
        )


def _ours(seconds: float) -> Iterator[Row]:
    yield best("ours, 5 tickets", "ours", batch=LARGE, seconds=seconds, tickets=5)
    yield measure("ours, 25 tickets", "ours", batch=LARGE, seconds=seconds, tickets=25)
    yield measure("ours, 20 events a publish", "ours", batch=BATCH, seconds=seconds, tickets=5)
    yield measure("ours, 20 events a publish, 10 tasks", "ours", batch=BATCH, tasks=10, seconds=seconds, tickets=5)
    yield measure("ours, 1 event a publish", "ours", batch=1, seconds=seconds, tickets=5)
    for what, batch in (("200 events", LARGE), ("20 events", BATCH), ("1 event", 1)):
        yield measure(
            f"ours, {what} a publish, read as events", "ours", batch=batch, seconds=seconds, tickets=5, events=True
        )
    yield best("ours, 5 % loss", "ours", batch=LARGE, seconds=seconds, tickets=5, drop=0.05)
    yield measure("ours, 200 events/s", "ours", rate=QUIET_RATE / MEMBERS, seconds=seconds)


def _memory() -> Row:
    done = subprocess.run(
        [sys.executable, "-m", "bench.peers.memory"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    found = json.loads(done.stdout)
    return {
        "what": "ours, memory at rest",
        "mb_a_process": round(found["one"], 1),
        "mb_per_further_member": round(found["each"], 2),
    }


# -- the goals --------------------------------------------------------------------------------------------------------


def goals(rows: list[Row]) -> list[Row]:
    """Ratios of this run against the goals. What could not be measured counts as neither reached nor missed."""
    by = {row["what"]: row for row in rows}

    def of(what: str, figure: str) -> float | None:
        value = by.get(what, {}).get(figure)
        return float(value) if value else None

    wanted: list[Row] = []

    def goal(what: str, mine: float | None, other: float | None, bound: float, least: bool = False) -> None:
        if mine is None or other is None:
            wanted.append({"what": f"goal: {what}", "holds": "not measured"})
            return
        ratio = mine / other
        holds = ratio >= bound if least else ratio <= bound
        wanted.append({"what": f"goal: {what}", "measured": round(ratio, 3), "holds": "yes" if holds else "NO"})

    rate, cpu = "deliveries_per_s", "cpu_us_per_delivery"
    mesh1, mesh20, mesh200 = (
        f"plain mesh, {n}" for n in ("1 event a frame", "20 events a frame", "200 events a frame")
    )
    ours1, ours20, ours200 = "ours, 1 event a publish", "ours, 20 events a publish", "ours, 5 tickets"
    mesh_quiet, quiet = "plain mesh, 200 events/s", "ours, 200 events/s"
    nats, nats_quiet = "NATS with nats-py", "NATS with nats-py, 200 events/s"
    goal("1 event a publish >= 3 x the mesh at 1 a frame", of(ours1, rate), of(mesh1, rate), 3.0, least=True)
    goal("1 event a publish >= 2 x NATS", of(ours1, rate), of(nats, rate), 2.0, least=True)
    goal("a lone event: CPU per delivery <= 3 x the mesh's", of(quiet, cpu), of(mesh_quiet, cpu), 3.0)
    goal("a lone event: p50 <= 1.3 x NATS's", of(quiet, "p50_us"), of(nats_quiet, "p50_us"), 1.3)
    goal("a lone event: p99 <= 2 x the mesh's", of(quiet, "p99_us"), of(mesh_quiet, "p99_us"), 2.0)
    goal("20 events a publish >= 0.5 x the mesh at 20 a frame", of(ours20, rate), of(mesh20, rate), 0.5, least=True)
    bulk = "200 events a publish >= 0.45 x the mesh at 200 a frame"
    goal(bulk, of(ours200, rate), of(mesh200, rate), 0.45, least=True)
    for n, ours, mesh, bound in ((20, "20 events", mesh20, 0.5), (200, "200 events", mesh200, 0.45)):
        each = of(f"ours, {ours} a publish, read as events", rate)
        goal(f"the same, read as events: {n} a publish", each, of(mesh, rate), bound, least=True)
    total = of("total-order group (corosync)", rate)
    goal("stretch: 200 events a publish >= 1 x corosync, batched", of(ours200, rate), total, 1.0, least=True)
    goal("CPU per delivery flat from 5 to 25 tickets (<= 1.25 x)", of("ours, 25 tickets", cpu), of(ours200, cpu), 1.25)
    goal("5 % loss does not halve the throughput", of("ours, 5 % loss", rate), of(ours200, rate), 0.5, least=True)
    goal("<= 40 MB a process, at rest (MB)", of("ours, memory at rest", "mb_a_process"), 1.0, 40.0)
    goal("<= 40 MB a process, at 200 events/s (MB)", of(quiet, "rss_mb"), 1.0, 40.0)
    goal("<= 64 MB a process, under saturating load (MB)", of(ours200, "rss_mb"), 1.0, 64.0)
    goal("<= 3 MB per further member, at rest (MB)", of("ours, memory at rest", "mb_per_further_member"), 1.0, 3.0)
    counts = Counter(row["holds"] for row in wanted)
    missing = sorted(row["skipped"] for row in rows if "skipped" in row)
    summary = {
        "what": "goals",
        "hold": counts["yes"],
        "do not hold": counts["NO"],
        "not measured": counts["not measured"],
    }
    wanted.append({**summary, "missing": "; ".join(missing)} if missing else summary)
    return wanted


def main(seconds: float = 3.0) -> list[Row]:
    rows = [*_peers(seconds), *_total(seconds), *_ours(seconds), _memory()]
    return rows + goals(rows)


if __name__ == "__main__":
    for result in main():
        print(result)
