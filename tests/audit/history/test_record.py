"""The example that records a history of Redis: of one server every level holds; of a replica that is cut off, none."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.commands import LIMIT, until
from tests.ports import free_ports
from whence.audit.history import check, read

EXAMPLE = Path(__file__).parents[3] / "examples" / "record_redis.py"
pytestmark = pytest.mark.skipif(
    shutil.which("redis-server") is None, reason="no redis-server (apt install redis-server)"
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[str]]:
    """Two servers that know nothing of each other."""
    with ExitStack() as stack:
        ports = free_ports(2)
        for port in ports:
            command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(tmp_path), "--bind", "127.0.0.1"]
            server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.DEVNULL))
            stack.callback(server.kill)
            until(lambda port=port: answers(port), "the server")
        yield [f"127.0.0.1:{port}" for port in ports]


def answers(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def test_a_history_of_redis(two: list[str], tmp_path: Path) -> None:
    for addresses, levels in ((two[:1], {True}), (two, {True, False})):
        command = [sys.executable, str(EXAMPLE), *addresses]
        done = subprocess.run(command, capture_output=True, timeout=LIMIT, check=True)
        (tmp_path / "redis.jsonl").write_bytes(done.stdout)
        report = check(read(tmp_path / "redis.jsonl"))
        assert report.operations == 600 and report.sessions == 6 and set(report.levels.values()) == levels
