"""A prompt: output appears above the line that is being typed."""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import sys
import termios
import tty
from typing import Final

MAX_TYPED: Final = 4096


class Prompt:
    """Lines typed at a terminal. It understands backspace, Ctrl-U, Ctrl-W, Enter and Ctrl-D; Ctrl-C stays a signal."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._typed = ""
        self._escape = ""
        self._lines: asyncio.Queue[list[bytes] | None] = asyncio.Queue(maxsize=1024)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._loop = asyncio.get_running_loop()
        self._saved = termios.tcgetattr(self._in)
        tty.setcbreak(self._in)
        self._loop.add_reader(self._in, self._readable)
        os.write(self._out, self._shown())

    def close(self) -> None:
        """Restore the terminal."""
        self._loop.remove_reader(self._in)
        termios.tcsetattr(self._in, termios.TCSADRAIN, self._saved)
        os.write(self._out, b"\r\x1b[K")

    async def next(self) -> list[bytes] | None:
        """The next line; None at the end."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
        return line

    def above(self, line: str) -> bytes:
        """What to write so that the line appears above the one being typed."""
        return f"\r\x1b[K{line}\n".encode() + self._shown()

    def _shown(self) -> bytes:
        room = max(10, shutil.get_terminal_size().columns - len(self._prompt) - 1)
        return f"\r\x1b[K{self._prompt}{self._typed[-room:]}".encode()

    def _readable(self) -> None:
        try:
            data = os.read(self._in, 4096)
        except OSError:
            data = b""
        if not data:
            self._end()
        for c in self._decode(data):
            self.key(c)
        os.write(self._out, self._shown())

    def key(self, c: str) -> None:
        """One character was typed."""
        if self._escape:  # an arrow key or the like: read to its end, then forgotten
            self._escape += c
            if len(self._escape) > 16 or ((c.isalpha() or c == "~") and self._escape != "\x1bO"):
                self._escape = ""
        elif c == "\x1b":
            self._escape = c
        elif c in "\r\n":
            if not self._lines.full():
                self._lines.put_nowait([self._typed.encode()])
                self._typed = ""
        elif c in "\x7f\b":
            self._typed = self._typed[:-1]
        elif c == "\x15":
            self._typed = ""
        elif c == "\x17":
            self._typed = self._typed.rstrip().rpartition(" ")[0]
        elif c == "\x04" and not self._typed:
            self._end()
        elif c.isprintable() and len(self._typed) < MAX_TYPED:
            self._typed += c

    def _end(self) -> None:
        self._loop.remove_reader(self._in)
        if not self._lines.full():
            self._lines.put_nowait(None)
