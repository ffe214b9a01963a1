"""Where voters keep their memory: a locked file, or a row elsewhere that is set by compare-and-set."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import fast, run, until
from whence.core.ring.interface import Memory
from whence.core.ring.messages import Council, Voter
from whence.errors import CorruptJournal, DiskError, JournalInUse, UsageError
from whence.live.net.rows import HOLD, EtcdRow, LeaseRow, Row, RowVotes, SqlRow, row_at
from whence.live.net.votes import FileVotes, state_directory
from whence.testing import MemoryNetwork

SOME = Memory("a:1#2", Council(3, (Voter("a:1#2", True),), ()), None)
OTHER = Memory("a:1#2", Council(4, (Voter("a:1#2", True),), ()), None)


def test_a_file_is_one_processs_and_says_when_it_is_damaged(tmp_path: Path) -> None:
    votes = FileVotes(tmp_path / "v")
    assert votes.load() is None
    votes.save(SOME)
    votes.save(OTHER)
    with pytest.raises(JournalInUse, match="in use by another process"):
        FileVotes(tmp_path / "v")
    votes.close()
    again = FileVotes(tmp_path / "v")
    assert again.load() == OTHER
    for damage in (b"", b"something else", (tmp_path / "v" / "vote").read_bytes()[:-1]):
        (tmp_path / "v" / "vote").write_bytes(damage)
        with pytest.raises(CorruptJournal, match=r"damaged one\. Without it this process is a new voter"):
            again.load()


def test_the_state_directory_has_one_for_each_cluster_and_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/s")
    assert state_directory("a/../b", "h:1") == Path("/s/whence/a%2f..%2fb/h%3a1")
    assert (
        state_directory("..", "h:1").parts[:3] == ("/", "s", "whence")
        and ".." not in state_directory("..", "h:1").parts
    )


# -- rows ----------------------------------------------------------------------------------------------------------


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += int(seconds * 1e9)


@pytest.fixture
def lease_server() -> Iterator[LeaseRow]:
    """As much of the Kubernetes API as a Lease needs."""
    stored: dict[str, dict[str, Any]] = {}
    numbers = iter(range(1, 1000))

    class Api(BaseHTTPRequestHandler):
        def answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            found = stored.get(self.path.rpartition("/")[2])
            self.answer(404 if found is None else 200, found)

        def put(self, name: str | None) -> None:
            lease = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            meta, had = lease["metadata"], stored.get(name or lease["metadata"]["name"])
            if (had is None) == (name is not None) or (
                had is not None and had["metadata"]["resourceVersion"] != meta.get("resourceVersion")
            ):
                self.answer(409, {})
                return
            meta["resourceVersion"] = str(next(numbers))
            stored[meta["name"]] = lease
            self.answer(200, lease)

        def do_POST(self) -> None:
            self.put(None)

        def do_PUT(self) -> None:
            self.put(self.path.rpartition("/")[2])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield LeaseRow(f"http://127.0.0.1:{server.server_port}", "prod", "lobby-voter", "token")
    server.shutdown()
    thread.join()
    server.server_close()


def _one_voter_at_a_time(row: Row) -> None:
    """The second waits until the first has not set the row for long; then the first is no voter any more."""
    assert row.read()[0] == b""
    clock = Clock()
    first = RowVotes(row, clock, clock.sleep)
    assert first.load() is None
    first.save(SOME)
    busy = iter(range(100))

    def renewing(seconds: float) -> None:
        clock.sleep(seconds)
        if next(busy) < 30:
            first.check(clock.now)

    with pytest.raises(JournalInUse):
        RowVotes(row, clock, renewing, patience=5.0)
    began = clock.now
    second = RowVotes(row, clock, clock.sleep)
    assert clock.now - began > HOLD and second.load() == SOME
    with pytest.raises(DiskError, match="taken by another process"):
        first.check(clock.now)
    with pytest.raises(DiskError, match="taken by another process"):
        first.save(OTHER)
    second.save(OTHER)
    second.close()
    began = clock.now
    third = RowVotes(row, clock, clock.sleep)
    assert clock.now == began and third.load() == OTHER  # it was given free


class Restarting:
    """A database that is away now and then, and may have taken a change of which it did not tell."""

    where = "the row"

    def __init__(self) -> None:
        self.value, self.version = b"", 0
        self.away = self.mute = False

    def read(self) -> tuple[bytes, object]:
        if self.away:
            raise ConnectionRefusedError("away")
        return self.value, self.version

    def compare_and_set(self, version: object, value: bytes) -> object | None:
        if self.away:
            raise ConnectionRefusedError("away")
        if version != self.version:
            return None
        self.value, self.version = value, self.version + 1
        if self.mute:
            raise TimeoutError("no answer")
        return self.version


@pytest.mark.parametrize("fault", ["away", "mute"])
def test_a_restart_of_the_database_costs_no_voter(fault: str) -> None:
    """Two seconds without it, at the worst time; then it is there again, perhaps with the last change in it."""
    row, clock = Restarting(), Clock()
    votes = RowVotes(row, clock, clock.sleep)
    clock.sleep(HOLD / 3e9)
    setattr(row, fault, True)
    for _ in range(15):
        votes.check(clock.now)
        clock.sleep(0.1)
    setattr(row, fault, False)
    clock.sleep(0.3)
    votes.check(clock.now)
    assert votes._held_at == clock.now
    votes.save(OTHER)
    votes.close()
    assert RowVotes(row, clock, clock.sleep).load() == OTHER


def test_without_the_database_a_voter_stops_long_before_another_takes_its_row() -> None:
    row, clock = Restarting(), Clock()
    votes = RowVotes(row, clock, clock.sleep)
    row.away = True
    with pytest.raises(DiskError, match="cannot use the row: ConnectionRefusedError: away"):
        votes.save(OTHER)
    assert HOLD // 2 < clock.now < HOLD * 5 // 6
    with pytest.raises(DiskError):
        votes.check(clock.now)


def test_a_row_taken_meanwhile_is_not_taken_back() -> None:
    row, clock = Restarting(), Clock()
    first = RowVotes(row, clock, clock.sleep)
    clock.sleep(HOLD / 3e9)
    row.mute = True
    first.check(clock.now)
    row.mute = False
    second = RowVotes(row, clock, clock.sleep)
    with pytest.raises(DiskError, match="taken by another process"):
        first.check(clock.now)
    second.save(OTHER)


def test_a_row_of_a_database(tmp_path: Path) -> None:
    _one_voter_at_a_time(SqlRow(sqlite3.connect(tmp_path / "votes.db"), "lobby"))


def test_a_lease_of_kubernetes(lease_server: LeaseRow) -> None:
    _one_voter_at_a_time(lease_server)


@pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd here (apt-get install etcd-server)")
def test_a_key_of_etcd(tmp_path: Path) -> None:
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        client, peer = (f"http://127.0.0.1:{s.getsockname()[1]}" for s in (a, b))
    command = ["etcd", "--data-dir", str(tmp_path / "etcd"), "--log-level", "error"]
    command += ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
    command += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    etcd = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        row = EtcdRow(client, "lobby")
        deadline = time.monotonic() + 120
        while True:
            try:
                row.read()
                break
            except OSError:
                assert etcd.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
        _one_voter_at_a_time(row)
    finally:
        etcd.kill()
        etcd.wait()


def test_addresses_of_rows(tmp_path: Path) -> None:
    row = row_at(f"sqlite://{tmp_path}/votes.db?name=lobby")
    assert row.compare_and_set(row.read()[1], b"x" * 30) and row.read()[0] == b"x" * 30
    for wrong in ("etcd://host:1", "redis://h/x", "sqlite://"):
        with pytest.raises(UsageError, match="a voter's memory is a directory, etcd://"):
            row_at(wrong)
    with pytest.raises(UsageError, match="inside a pod"):
        row_at("k8s://prod/lobby")


# -- live ----------------------------------------------------------------------------------------------------------

HOMES = ("127.0.0.1:7001", "127.0.0.1:7002")


def test_two_with_a_memory_and_a_decision(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The first voter is killed and started again with its memory: both publish. Killed for good: the other says why
    it cannot publish and what to do; a person decides, and it goes on."""
    network = MemoryNetwork()
    options: dict[str, Any] = {"transport": network, "settings": fast()}

    async def main() -> None:
        first = whence.create("two", HOMES[0], memory=tmp_path / "a", **options)
        a = await first.__aenter__()
        async with whence.join("two", HOMES[0], HOMES[1], memory=tmp_path / "b", **options) as b:
            async with b.publisher() as publisher:
                await publisher.publish(b"one")
                await until(lambda: b.council is not None and len(b.council.voters) == 2, "two voters")
                assert a.council is not None and b.council is not None
                assert a.council.says().startswith(f"council of 2 (this process, {HOMES[1]}): publishing survives the ")
                assert f"survives the loss of {HOMES[1]}'s process, not of this process: start a third member" in (
                    a.council.says()
                )
                with pytest.raises(UsageError, match="there is nothing to found again"):
                    await b.recreate(force=True)
                a.abandon()
                await first._close()
                await until(lambda: not b.may_publish, "the loss")
                first = whence.create("two", HOMES[0], memory=tmp_path / "a", **options)
                a = await first.__aenter__()
                await publisher.publish(b"two")
                a.abandon()
                await first._close()
                await until(lambda: not b.may_publish and b.council and b.council.missing, "the second loss")
            with pytest.raises(whence.NoTicket, match=r"1 of 2 voters does not answer, 127\.0\.0\.1:7001 .*--force"):
                async with b.publisher(timeout=1) as publisher:
                    await publisher.publish(b"three")
            await b.recreate(force=True)
            async with b.publisher() as publisher:
                await publisher.publish(b"four")
            assert [v.member for v in b.council.voters] == [b.me] or len(b.council.voters) == 1

    run(main())


def test_a_memory_is_kept_where_the_address_was_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    async def main() -> None:
        for address, kept in (("127.0.0.1:0", False), (f"127.0.0.1:{port}", True)):
            async with whence.create("x", address, insecure=True, settings=fast()) as cluster:
                async with cluster.publisher() as publisher:
                    await publisher.publish(b"x")
                assert (state_directory("x", cluster.address) / "vote").is_file() is kept

    run(main())
