"""Run `whence` commands as real processes and wait for what they print."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

LIMIT = 240.0
"""Seconds after which a condition counts as never to come true: far above what any of them takes."""


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for it; returns what it returned."""
    deadline = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {LIMIT} s"
        time.sleep(0.01)
    return found


class Command:
    """A `whence` process and what it has said so far."""

    def __init__(self, *args: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "whence", *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: Any, lines: list[str]) -> None:
        for line in stream:
            lines.append(line.decode().rstrip("\n"))

    def say(self, *lines: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self.process.stdin.flush()

    def heard(self, *texts: str) -> bool:
        """Each of these is in some line of standard output."""
        return all(any(text in line for line in list(self.out)) for text in texts)

    def notice(self, pattern: str) -> re.Match[str]:
        """Wait for a notice."""

        def found() -> re.Match[str] | None:
            matches = (re.search(pattern, line) for line in list(self.err))
            hit = next((m for m in matches if m), None)
            assert hit or self.process.poll() is None, f"it ended: {self.err}"
            return hit

        try:
            match: re.Match[str] = until(found, f"notice {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it said {self.err}") from None
        return match

    @property
    def address(self) -> str:
        return self.notice(r"(127\.0\.0\.1:\d+) has (?:created|joined) ")[1]

    @property
    def metrics(self) -> str:
        return self.notice(r"metrics at http://([^/]+)/")[1]

    def end(self, how: int | None = None) -> int:
        """End its input, or send a signal; returns its exit code."""
        if how is not None:
            self.process.send_signal(how)
        assert self.process.stdin is not None
        if how is None:
            self.process.stdin.close()
        code = self.process.wait(LIMIT)
        for reader in self._readers:
            reader.join(LIMIT)
        return code


def whence(*args: object) -> tuple[int, str, str]:
    """A command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "whence", *map(str, args)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()
