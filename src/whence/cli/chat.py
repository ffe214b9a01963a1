"""`whence chat`: people in a cluster. A speaker takes a ticket, and a silent one gives it to whoever wants to speak."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import os
import shutil
import sys
import termios
import time
import tty
from contextlib import suppress
from typing import Final

import msgspec

from whence.cli.connect import Notices, entered, joining, run_until_stopped, tell_council
from whence.cli.streams import Lines, PipeWriter, printable
from whence.core.clock import address_of
from whence.errors import NoTicket, UsageError
from whence.live.api import Cluster
from whence.live.bridge import Reader, Said, local
from whence.live.events import Event

TICKET_S: Final = 10.0
"""Seconds without a ticket after which the speaker is told."""
MAX_TEXT: Final = 4096
HELP: Final = "/who: who is here   /quit (or Ctrl-D): leave   anything else is said to all"


class Word(msgspec.Struct, frozen=True):
    """What is said: the payload of an event, in JSON."""

    nick: str
    text: str


def chat(args: argparse.Namespace) -> int:
    """Talk until the input ends or a signal comes."""
    if not 1 <= len(args.nick) <= 32 or printable(args.nick.encode("utf-8", "replace")) != args.nick:
        raise UsageError(f"a nick has 1 to 32 printable characters, not {args.nick!r}")
    return run_until_stopped(_chat(args))


async def _chat(args: argparse.Namespace) -> int:
    notice = Notices(False)
    async with joining(args) as cluster:
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        notice(f"{args.nick} {entered(cluster)} at {cluster.address}. {HELP if terminal else ''}".rstrip())
        prompt = Prompt(f"{args.nick}> ") if terminal else None
        talk = _Talk(args.nick, cluster, prompt)
        listening = asyncio.create_task(talk.listen())
        telling = asyncio.create_task(tell_council(cluster, talk.note if terminal else notice))
        try:
            await talk.speak(prompt or Lines(sys.stdin.fileno(), MAX_TEXT))
            await cluster.leave()
            await listening
        finally:
            telling.cancel()
            listening.cancel()
            with suppress(asyncio.CancelledError, BrokenPipeError):
                await listening
            if prompt is not None:
                prompt.close()
    return 0


class _Talk:
    def __init__(self, nick: str, cluster: Cluster, prompt: Prompt | None) -> None:
        self.nick = nick
        self.cluster = cluster
        self._output = PipeWriter(sys.stdout.fileno())
        self._prompt = prompt
        self._notes: asyncio.Future[None] | None = None

    async def listen(self) -> None:
        """Show what is said."""
        reader = Reader(self.cluster.name)
        async for event in self.cluster.events():
            said = reader.read(event.id, event.payload)
            if said is not None:
                await self.show(_line(event, said))

    async def show(self, line: str) -> None:
        await self._output.write(self._prompt.above(line) if self._prompt else f"{line}\n".encode())

    def note(self, text: str, **fields: object) -> None:
        """Beside what is said."""
        self._notes = asyncio.ensure_future(self.show(f"({text})"))

    async def speak(self, lines: Lines | Prompt) -> None:
        """Say line by line; returns at the end of input."""
        words, more = await self._words(lines)
        async with self.cluster.publisher(timeout=TICKET_S) as publisher:
            while words or more:
                try:
                    await publisher.publish_many(list(map(local, words)))
                    words = []
                    if more:
                        words, more = await self._words(lines)
                except NoTicket as none:
                    words = words[len(none.published) :]
                    await self.show(f"(nobody hears you yet: {none})")

    async def _words(self, lines: Lines | Prompt) -> tuple[list[bytes], bool]:
        """What is to be said next, and whether more may follow."""
        batch = await lines.next()
        words: list[bytes] = []
        for line in batch or ():
            text = line.decode("utf-8", "replace").strip()
            if text == "/quit":
                return words, False
            if text == "/who":
                tickets = {owner: f" (ticket {ticket})" for ticket, owner in self.cluster.coordinators().items()}
                for member in self.cluster.members():
                    await self.show(f"  {address_of(member)}{tickets.get(member, '')}")
            elif text.startswith("/"):
                await self.show(f"  {HELP}")
            elif text:
                words.append(msgspec.json.encode(Word(self.nick, text)))
        return words, batch is not None


def _line(event: Event, said: Said) -> str:
    try:
        word = msgspec.json.decode(said.payload, type=Word)
        nick, text = word.nick[:32], word.text
    except (msgspec.DecodeError, UnicodeDecodeError):
        nick, text = said.client or address_of(event.origin), said.payload.decode("utf-8", "replace")
    gap = "  (something before it was lost)" if event.over_gap else ""
    nick, text = (printable(part.encode("utf-8", "replace")) for part in (nick, text))
    return f"{time.strftime('%H:%M:%S')} <{nick}> {text}{gap}"


class Prompt:
    """Lines typed at a terminal, below what is shown meanwhile. It understands backspace, Ctrl-U, Ctrl-W, Enter and
    Ctrl-D; Ctrl-C stays a signal."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._typed = self._escape = ""
        self._lines: asyncio.Queue[list[bytes] | None] = asyncio.Queue()
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
        return await self._lines.get()

    def above(self, line: str) -> bytes:
        """What to write so that the line appears above the one being typed."""
        return f"\r\x1b[K{line}\n".encode() + self._shown()

    def _shown(self) -> bytes:
        room = max(10, shutil.get_terminal_size().columns - len(self._prompt) - 1)
        return f"\r\x1b[K{self._prompt}{self._typed[-room:]}".encode()

    def _readable(self) -> None:
        data = b""
        with suppress(OSError):  # the terminal is gone
            data = os.read(self._in, 4096)
        for c in self._decode(data) if data else "\x15\x04":
            self._key(c)
        os.write(self._out, self._shown())

    def _key(self, c: str) -> None:
        if self._escape:  # an arrow key or the like: read to its end, then forgotten
            self._escape += c
            if len(self._escape) > 16 or ((c.isalpha() or c == "~") and self._escape != "\x1bO"):
                self._escape = ""
        elif c == "\x1b":
            self._escape = c
        elif c in "\r\n":
            self._lines.put_nowait([self._typed.encode()])
            self._typed = ""
        elif c in "\x7f\b":
            self._typed = self._typed[:-1]
        elif c == "\x15":
            self._typed = ""
        elif c == "\x17":
            self._typed = self._typed.rstrip().rpartition(" ")[0]
        elif c == "\x04" and not self._typed:
            self._loop.remove_reader(self._in)
            self._lines.put_nowait(None)
        elif c.isprintable() and len(self._typed) < MAX_TEXT:
            self._typed += c
