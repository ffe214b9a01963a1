"""`whence serve` as processes, one killed with -9, and clients in Node and Python. The judge has the clients' steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import LIMIT, Command, until
from tests.ports import free_ports
from whence.audit.judge import judge
from whence.audit.trace import Row, read

pytest.importorskip("uvicorn", reason="needs uvicorn and websockets")
pytest.importorskip("websockets", reason="needs uvicorn and websockets")

NODE = shutil.which("node")
SCRIPT = Path(__file__).with_name("talk.mjs")
COUNT = 60


class Served:
    """Three workers, traced."""

    def __init__(self, start: Callable[..., Command], home: Path) -> None:
        self.traces = home / "traces"
        self.started: list[Command] = []
        self.urls: list[str] = []
        self.members: list[str] = []
        contact = f"127.0.0.1:{free_ports(1)[0]}"
        for n in range(3):
            where = ["--contact", contact] if n else ["--listen", contact]
            more = ["--insecure", "--http", "127.0.0.1:0", "--trace", self.traces / str(n), "--json"]
            self.started.append(start("serve", "--cluster", "chat", *where, *more))
            said = self.notice(n, "rooms")
            self.urls.append(said["rooms"].replace("http", "ws") + "/lobby")
            self.members.append(said["me"])
        until(lambda: any('"may_lose": 1' in line for line in list(self.started[0].err)), "one may be lost")

    def notice(self, n: int, key: str) -> dict[str, Any]:
        def find() -> Any:
            lines = [json.loads(line) for line in list(self.started[n].err) if line.startswith("{")]
            return next((line for line in lines if key in line), None)

        return until(find, f"worker {n} says {key}")

    def kill(self, n: int) -> Row:
        """kill -9; returns the row that says so."""
        self.started[n].process.kill()
        self.started[n].process.wait(LIMIT)
        return Row("", "chat/lobby", self.members[n], 1 << 40, time.time_ns(), "crash")

    def rows(self) -> list[Row]:
        """The steps in the room; a killed process may leave half a line."""
        return [row for row in read(self.traces, on_bad="collect") if row.cluster == "chat/lobby"]


@pytest.fixture
def served(start: Callable[..., Command], tmp_path: Path) -> Iterator[Served]:
    yield Served(start, tmp_path)


class Talker:
    """A client in Node."""

    def __init__(self, user: str, count: int, urls: list[str], client: str) -> None:
        flags = ["--experimental-websocket", "--no-warnings"]
        self.process = subprocess.Popen(
            [str(NODE), *flags, str(SCRIPT), client, str(count), user, *urls],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.lines: list[dict[str, Any]] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def events(self) -> list[tuple[str, int]]:
        return [(line["user"], line["number"]) for line in list(self.lines) if "number" in line]

    def said(self, key: str) -> Any:
        return next((line for line in list(self.lines) if key in line), None)

    def go(self) -> None:
        """On to what comes next."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        self.go()
        assert self.process.wait(LIMIT) == 0
        return next(line for line in self.lines if "hits" in line)


@pytest.mark.skipif(NODE is None, reason="no Node here (Debian: apt install nodejs)")
def test_kill_9_of_a_worker_costs_no_event_and_doubles_none(served: Served) -> None:
    module = (Path(__file__).parents[3] / "src" / "whence" / "live" / "web" / "whence.js").as_uri()
    a, b, c = served.urls
    talkers = [Talker("ann", COUNT, [a, b, c], module), Talker("bob", COUNT, [b, c], module)]
    try:
        for talker in talkers:
            until(lambda t=talker: t.said("ready"), "both are there")
        for talker in talkers:
            talker.go()
        until(lambda: len(talkers[1].events()) > COUNT, "they talk")
        crash = served.kill(0)
        for talker in talkers:
            until(lambda t=talker: t.said("done"), "all receipts")
        for talker in talkers:
            until(lambda t=talker: len(t.events()) >= 6 * COUNT, "everything arrived")
        last = [talker.finish() for talker in talkers]
    finally:
        for talker in talkers:
            talker.process.kill()
    for talker in talkers:
        events = talker.events()
        assert len(events) == 6 * COUNT, "no gap, and no duplicate"
        for user in ("ann", "bob"):
            assert [n for who, n in events if who == user] == list(range(1, 3 * COUNT + 1))
        assert not any("reset" in line or line.get("code", 1000) != 1000 for line in talker.lines)
    assert last[0] == last[1] == {"hits": 2 * COUNT, "last": {"ann": COUNT, "bob": COUNT}}
    workers = {line["worker"] for line in talkers[0].lines if line.get("state") == "open"}
    assert served.members[0] in workers and len(workers) > 1, "it went on at another worker"
    judged(served, [crash])


def judged(served: Served, crashes: list[Row]) -> None:
    """The judge on the room, its workers and clients."""
    until(lambda: sum(row.kind == "leave" for row in served.rows()) >= 2, "clients say that they leave")
    rows = served.rows()
    run = rows[0].run
    ends = [Row(run, row.cluster, row.member, last(rows, row.member) + 1, row.t_ns, "crash") for row in crashes]
    clients = {row.member for row in rows if row.kind == "publish"}
    assert len(clients) == 2 and all(row.order == "reliable" for row in rows if row.kind == "join")
    report = judge(rows + ends, complete=False)
    assert report.ok, report
    delivered = {who: sum(row.kind == "deliver" and row.member == who for row in rows) for who in clients}
    assert set(delivered.values()) == {6 * COUNT}, "the last hop is in the trace"


def last(rows: list[Row], member: str) -> int:
    return max((row.lseq for row in rows if row.member == member), default=-1)
