"""`whence serve` as processes, one killed with -9, and clients in Node and Python. The judge has the clients' steps."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import LIMIT, Command, until
from tests.house.imports import ROOT
from tests.live.web.served import Served

pytest.importorskip("uvicorn", reason="needs uvicorn and websockets")
pytest.importorskip("websockets", reason="needs uvicorn and websockets")

NODE = shutil.which("node")
SCRIPT = Path(__file__).with_name("talk.mjs")
COUNT = 60


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
        served.kill(0)
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
    assert list(served.judged(2).values()) == [6 * COUNT] * 2, "the last hop is in the trace"


TALK = """
import asyncio, os, signal, sys
from examples.room_client import RoomClosed, connect

async def main(pid, urls):
    async with connect(urls, token="sender") as sender, connect(urls[::-1], token="reader") as reader:
        heard = []
        async def read():
            async for event in reader.events():
                if event["u"] == "sender":
                    heard.append(event["n"])
                if len(heard) == 1500:
                    return
        reading = asyncio.create_task(read())
        await reader.operate("set", "m", "k", [1])
        await sender.here("fine")
        burst = [asyncio.create_task(sender.publish(n)) for n in range(1000)]
        await burst[300]
        os.kill(pid, signal.SIGKILL)
        await asyncio.gather(*burst, *(sender.operate("add", "hits", 2) for _ in range(500)))
        await reading
        assert heard == list(range(1, 1501)), heard[:50]
        print(reader.resets, sender.resets, sender.unsent, reader.counters, sender.registers("m"), reader.why)
        while [each["d"] for each in reader.present] != ["fine"]:
            await asyncio.sleep(0.05)
    try:
        async with connect([url + "/no/room" for url in urls[1:]]) as nowhere:
            await nowhere.publish(1)
    except RoomClosed as closed:
        print(closed.code)

asyncio.run(main(int(sys.argv[1]), sys.argv[2:]))
"""


def test_a_burst_of_one_sender_arrives_in_order_and_all_though_its_worker_dies(served: Served) -> None:
    """The Python client. django/channels#1683 tells of bursts of one sender that arrive in part and out of order."""
    command = [sys.executable, "-c", TALK, served.started[0].process.pid, *served.urls]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert done.stdout.splitlines() == ["[] [] 0 {'hits': 1000} {'k': [1]} ", "4400"], done.stderr
