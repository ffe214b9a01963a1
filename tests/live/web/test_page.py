"""The programs of docs/web.md: FastAPI with three workers that are processes, and clients on real sockets."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cli.commands import LIMIT, until
from tests.house.imports import PAGES, ROOT
from tests.ports import free_ports

pytest.importorskip("fastapi", reason="needs fastapi, uvicorn and websockets")
pytest.importorskip("uvicorn", reason="needs fastapi, uvicorn and websockets")
pytest.importorskip("websockets", reason="needs fastapi, uvicorn and websockets")

PAGE = PAGES[ROOT / "docs" / "web.md"]
PROGRAMS = re.findall(r'```python\n("""(\w+\.py):.*?)```', PAGE, re.DOTALL)


def answered(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=LIMIT) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """The address of the workers; in the end they are stopped as an operator would."""
    assert [name for _, name in PROGRAMS] == ["room_app.py", "anchor.py"]
    for text, name in PROGRAMS:
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("the editor", encoding="utf-8")
    here, port = free_ports(2)
    env = {**os.environ, "CONTACTS": f"127.0.0.1:{here}", "SECRET": "not a secret"}
    uvicorn = ["-m", "uvicorn", "room_app:app", "--workers", "3", "--port", str(port), "--log-level", "warning"]
    anchor, workers = (
        subprocess.Popen([sys.executable, *args], cwd=tmp_path, env=env) for args in (["anchor.py"], uvicorn)
    )
    try:
        until(lambda: answered(f"http://127.0.0.1:{port}/rooms/health"), "a worker serves")
        yield f"127.0.0.1:{port}"
        workers.send_signal(signal.SIGINT)
        assert workers.wait(LIMIT) == 0, "stopped by Ctrl-C"
    finally:
        for process in (workers, anchor):
            process.kill()
            process.wait(LIMIT)


def test_clients_of_all_workers_get_each_question_before_its_answer(address: str) -> None:
    from examples.room_client import RoomClient, RoomClosed, connect

    assert answered(f"http://{address}/") and answered(f"http://{address}/rooms/whence.js")
    url, count = f"ws://{address}/rooms/notes", 20

    async def listened(room: RoomClient, heard: list[str]) -> None:
        async for event in room.events():
            heard.append(event["d"])
            if len(heard) == 2 * count:
                return

    async def answers(room: RoomClient) -> None:
        async for event in room.events():
            if event["d"].endswith("?"):
                await room.publish(event["d"].replace("?", "!"))

    async def talk() -> None:
        async with AsyncExitStack() as stack:
            asker, *rooms = [
                await stack.enter_async_context(connect(url, token=f"user{n}", proxy=None)) for n in range(9)
            ]
            while not all(room.me for room in (asker, *rooms)):
                await asyncio.sleep(0.05)
            heard: list[list[str]] = [[] for _ in rooms[1:]]
            answering = asyncio.create_task(answers(rooms[0]))
            listening = [asyncio.create_task(listened(*each)) for each in zip(rooms[1:], heard, strict=True)]
            await asyncio.sleep(0)
            for n in range(count):
                await asker.publish(f"{n}?")
            await asyncio.gather(*listening)
            answering.cancel()
            for lines in heard:
                assert sorted(lines) == sorted(f"{n}{mark}" for n in range(count) for mark in "?!")
                assert all(lines.index(f"{n}?") < lines.index(f"{n}!") for n in range(count))
        with pytest.raises(RoomClosed, match="REFUSED"):
            async with connect(url, proxy=None) as stranger:
                await stranger.publish("let me in")

    asyncio.run(asyncio.wait_for(talk(), LIMIT))
