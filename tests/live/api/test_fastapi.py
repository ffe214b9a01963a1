"""The page on FastAPI: its programs, with three workers that are processes, and clients on real sockets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import LIMIT, until
from tests.house.imports import PAGES, ROOT
from tests.ports import free_ports

websockets = pytest.importorskip("websockets", reason="needs fastapi, uvicorn and websockets")
pytest.importorskip("fastapi", reason="needs fastapi, uvicorn and websockets")

PROGRAMS = re.findall(r'```python\n("""(\w+\.py):.*?)```', PAGES[ROOT / "docs" / "fastapi.md"], re.DOTALL)


def call(url: str, method: str = "GET") -> Any:
    """The JSON of an answer; None while there is none."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=LIMIT) as answer:
            return json.load(answer)
    except (urllib.error.URLError, ConnectionError):
        return None


@pytest.fixture
def web(tmp_path: Path) -> Any:
    """The address of the workers; in the end all of it is stopped as an operator would."""
    assert [name for _, name in PROGRAMS] == ["chat_app.py", "anchor.py"]
    for text, name in PROGRAMS:
        (tmp_path / name).write_text(text, encoding="utf-8")
    here, port = free_ports(2)
    env = {**os.environ, "CONTACTS": f"127.0.0.1:{here}", "SECRET": "not a secret"}
    uvicorn = ["-m", "uvicorn", "chat_app:app", "--workers", "3", "--port", port, "--log-level", "warning"]
    anchor, workers = (
        subprocess.Popen([sys.executable, *map(str, args)], cwd=tmp_path, env=env) for args in (["anchor.py"], uvicorn)
    )
    try:
        yield f"127.0.0.1:{port}"
        workers.send_signal(signal.SIGINT)
        assert workers.wait(LIMIT) == 0, "stopped, though sockets were open"
    finally:
        for process in (workers, anchor):
            process.kill()
            process.wait(LIMIT)


def members(address: str) -> set[str]:
    said = call(f"http://{address}/ready")
    assert said is None or said["reasons"] == []
    return set() if said is None else {said["me"]}


def collected(look: Callable[[], set[str]], count: int) -> Callable[[], bool]:
    found: set[str] = set()
    return lambda: found.update(look()) or len(found) >= count  # type: ignore[func-returns-value]


def test_three_workers_tell_every_socket_the_question_before_the_answer(web: str) -> None:
    until(collected(lambda: members(web), 3), "three workers are ready")

    async def talk() -> None:
        async def answerer(socket: Any) -> None:
            async for line in socket:
                if line.endswith("?"):
                    await socket.send(line.replace("?", "!"))

        sockets = [await websockets.connect(f"ws://{web}/chat") for _ in range(9)]
        answering = asyncio.create_task(answerer(sockets[0]))
        for n in range(30):
            await sockets[1 + n % 3].send(f"{n}?")
        for socket in sockets[1:]:
            lines = [await asyncio.wait_for(socket.recv(), LIMIT) for _ in range(60)]
            assert sorted(lines) == sorted(f"{n}{mark}" for n in range(30) for mark in "?!")
            assert all(lines.index(f"{n}?") < lines.index(f"{n}!") for n in range(30))
        answering.cancel()

    asyncio.run(talk())
    for n in range(20):  # each call may be another worker's
        event = call(f"http://{web}/topic?text=topic{n}", "PUT")
        assert call(f"http://{web}/topic?after={urllib.parse.quote(event)}") == f"topic{n}"
