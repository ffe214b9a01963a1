"""`whence chat`: people in a cluster. A speaker takes a ticket and gives it back after a silence."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from typing import Final

import msgspec

from whence.cli.connect import Notices, entered, joining, run_until_stopped, tell_council
from whence.cli.streams import Lines, PipeWriter, printable
from whence.cli.terminal import Prompt
from whence.core.clock import address_of
from whence.errors import NoTicket, UsageError
from whence.live.api import Cluster, Event
from whence.live.bridge import Reader, Said, local

SILENCE_S: Final = 20.0
"""Seconds without a word after which a ticket is given back: there are fewer tickets than people."""
TICKET_S: Final = 10.0
"""Seconds without a ticket after which the speaker is told."""
MAX_TEXT: Final = 4096

HELP: Final = "/who: who is here   /stats: what happened   /quit (or Ctrl-D): leave   anything else is said to all"


class Word(msgspec.Struct, frozen=True):
    """What is said: the payload of an event, in JSON."""

    nick: str
    text: str


_decoder = msgspec.json.Decoder(Word)


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
        output = PipeWriter(sys.stdout.fileno())
        prompt = Prompt(f"{args.nick}> ") if terminal else None
        talk = _Talk(args.nick, cluster, output, prompt)
        lines = prompt or Lines(sys.stdin.fileno(), MAX_TEXT)
        listening = asyncio.create_task(talk.listen())
        telling = asyncio.create_task(tell_council(cluster, talk.note if terminal else notice))
        try:
            await talk.speak(lines)
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
    def __init__(self, nick: str, cluster: Cluster, output: PipeWriter, prompt: Prompt | None) -> None:
        self.nick = nick
        self.cluster = cluster
        self._output = output
        self._prompt = prompt
        self._notes: asyncio.Future[None] | None = None

    # -- listening --------------------------------------------------------------------------------------------------

    async def listen(self) -> None:
        """Show what is said."""
        reader = Reader(self.cluster.name)
        async for event in self.cluster.events():
            said = reader.read(event.id, event.payload)
            if said is not None:
                await self.show(self._line(event, said))

    def _line(self, event: Event, said: Said) -> str:
        try:
            word = _decoder.decode(said.payload)
            nick, text = word.nick[:32], word.text
        except (msgspec.DecodeError, UnicodeDecodeError):
            nick, text = said.client or address_of(event.origin), said.payload.decode("utf-8", "replace")
        gap = "  (something before it was lost)" if event.over_gap else ""
        nick, text = (printable(part.encode("utf-8", "replace")) for part in (nick, text))
        return f"{time.strftime('%H:%M:%S')} <{nick}> {text}{gap}"

    async def show(self, line: str) -> None:
        await self._output.write(self._prompt.above(line) if self._prompt else f"{line}\n".encode())

    def note(self, text: str, **fields: object) -> None:
        """Beside what is said."""
        self._notes = asyncio.ensure_future(self.show(f"({text})"))

    # -- speaking ---------------------------------------------------------------------------------------------------

    async def speak(self, lines: Lines | Prompt) -> None:
        """Say line by line; returns at the end of input."""
        words: list[bytes] = []
        more = True
        while words or more:
            if not words:
                words, more = await self._words(lines, None)
                continue
            try:
                async with self.cluster.publisher(timeout=TICKET_S) as publisher:
                    while words:
                        await publisher.publish_many(list(map(local, words)))
                        words = []
                        if more:
                            words, more = await self._words(lines, SILENCE_S)
            except NoTicket as none:
                words = words[len(none.published) :]
                await self.show(f"(nobody hears you yet: {none})")

    async def _words(self, lines: Lines | Prompt, patience: float | None) -> tuple[list[bytes], bool]:
        """What is to be said next, and whether more may follow; nothing if nothing came in time."""
        try:
            async with asyncio.timeout(patience):
                batch = await lines.next()
        except TimeoutError:
            return [], True
        if batch is None:
            return [], False
        words: list[bytes] = []
        for line in batch:
            text = line.decode("utf-8", "replace").strip()
            if text == "/quit":
                return words, False
            if text.startswith("/"):
                await self._command(text)
            elif text:
                words.append(msgspec.json.encode(Word(self.nick, text)))
        return words, True

    async def _command(self, text: str) -> None:
        cluster = self.cluster
        if text == "/who":
            tickets = {owner: f" (ticket {ticket})" for ticket, owner in cluster.coordinators().items()}
            for member in cluster.members():
                await self.show(f"  {address_of(member)}{tickets.get(member, '')}")
        elif text == "/stats":
            said = ", ".join(f"{name} {number:,}" for name, number in cluster.stats().items() if number)
            await self.show(f"  {said}")
        else:
            await self.show(f"  {HELP}")
