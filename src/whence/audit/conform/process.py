"""A node of the system under test: one process, and its lines of input and output."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from whence.audit.conform.messages import LINE_LIMIT
from whence.errors import AdapterError

MAX_UNREAD: Final = 16 << 20
"""The most unread bytes of a node's input; beyond that it is considered hung."""
STDERR_SHOWN: Final = 800


class Process:
    """A running node. It leads its own process group, so its children die with it."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, errors: Path) -> None:
        self.name = name
        self.gone = False
        self._process = process
        self._errors = errors
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        errors: Path,
        line: Callable[[str, bytes], None],
        failed: Callable[[AdapterError], None],
    ) -> Process:
        """`line` gets every line of its output; `failed` is called when it ends by itself."""
        try:
            with errors.open("ab") as stderr:
                process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    limit=LINE_LIMIT,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise AdapterError(f"cannot start {' '.join(command)!r}: {reason}") from None
        node = cls(name, process, errors)
        node._reader = asyncio.create_task(node._read(line, failed))
        return node

    async def _read(self, line: Callable[[str, bytes], None], failed: Callable[[AdapterError], None]) -> None:
        assert self._process.stdout is not None
        try:
            while text := await self._process.stdout.readline():
                if not self.gone:
                    line(self.name, text)
            if not self.gone:
                code = await self._process.wait()
                how = f"ended with exit code {code}" if code >= 0 else f"was ended by signal {-code}"
                failed(self.error(f"{how}, though nobody had told it to"))
        except ValueError:  # asyncio raises this for a line beyond its limit
            failed(self.error(f"wrote a line longer than {LINE_LIMIT} bytes"))
        except AdapterError as error:
            failed(error)

    def error(self, what: str) -> AdapterError:
        """An error about this node, with the end of its standard error."""
        text = self._errors.read_bytes()[-STDERR_SHOWN:].decode("utf-8", "replace").strip()
        return AdapterError(f"{self.name} {what}" + (f"; its standard error ends with:\n{text}" if text else ""))

    def write(self, line: bytes) -> None:
        """Write one line to its standard input."""
        stdin = self._process.stdin
        assert stdin is not None
        if self.gone or stdin.is_closing():  # closed by the node; the reader reports why
            return
        if stdin.transport.get_write_buffer_size() > MAX_UNREAD:
            raise self.error("does not read its standard input")
        stdin.write(line)

    async def kill(self) -> None:
        """Send SIGKILL to its process group, and wait."""
        self.gone = True
        with suppress(ProcessLookupError, PermissionError):  # it is gone already, and so is its group
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if self._process.stdin is not None:
            self._process.stdin.close()
