"""Open groups, the client's side: publish in a cluster without being a member of it, exactly once.

    async with Client("lobby", ["10.0.0.5:7100", "10.0.0.6:7100"], secret=...) as client:
        await client.publish(b"hello")

One event is under way at a time. It is asked of one member, and of the next under the same name when there is no
answer in time. It counts as published when `copies` members have delivered it: then it survives the death of all of
them but one, and whoever has not got it yet gets it from that one. A member that waits for its predecessor, or has it
under way, does not publish it again; a copy all the same (the first member died, and its event spreads) is dropped by
every reader, because it has the same name.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import ssl
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from whence.core.wire import DEFAULT
from whence.errors import ClusterClosed, NotAccepted, RemoteError, UsageError
from whence.live.bridge.line import MAX_CLIENT, Accepted, Greeting, Line, Refused, Request, Safety
from whence.live.net.keys import Keys
from whence.live.net.tls import refusal
from whence.live.net.transport import parse_address

RETRY_S = 0.2
HEADING_ROOM = 4096
"""Bytes of a payload that are left to headings: it may cross bridges."""


class Client:
    """A process outside the cluster that publishes in it."""

    def __init__(
        self,
        cluster: str,
        via: Sequence[str],
        *,
        secret: bytes | str | None = None,
        tls: Keys | str | os.PathLike[str] | None = None,
        insecure: bool = False,
        client: str | None = None,
        last: int = 0,
        copies: int | None = None,
        patience: float = 5.0,
        timeout: float = 60.0,
    ) -> None:
        """`via`: doors of members. `client` and `last`, the last number it has used: to go on as the client it was;
        else it is a new one. `copies`: members that must have delivered an event (default two, or one where only one is
        named: then its death can lose what it alone has). More: survives more deaths at once, and waits for more
        answers. `patience`: seconds until the next member is asked. `timeout`: seconds until it is given up."""
        if not via:
            raise UsageError("a client needs a member to publish through")
        self.via = list(dict.fromkeys(via))
        for address in self.via:
            parse_address(address)
        self.copies = min(2, len(self.via)) if copies is None else copies
        if not 1 <= self.copies <= len(self.via):
            raise UsageError(f"copies must be 1 .. {len(self.via)}, as many as there are members to ask: {self.copies}")
        self.client = client or secrets.token_hex(8)
        if len(self.client) > MAX_CLIENT:
            raise UsageError(f"a client's name has at most {MAX_CLIENT} characters")
        self.cluster = cluster
        self.number = last
        self.patience = patience
        self.timeout = timeout
        self.asked_again = 0
        self._safety = Safety.of(secret, tls, insecure, *self.via)
        self._lines: dict[str, Line] = {}
        self._answers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        for address in list(self._lines):
            self._hang_up(address)

    async def publish(self, payload: bytes, everywhere: bool = False) -> int:
        """Publish after all that was published before; returns its number. Raises `NotAccepted`: then call it again,
        with the same payload."""
        cap = DEFAULT.max_payload_bytes - HEADING_ROOM
        if len(payload) > cap:
            raise UsageError(f"an event from outside holds at most {cap} bytes, not {len(payload)}")
        request = Request(self.cluster, self.client, self.number + 1, payload, everywhere)
        over = time.monotonic() + self.timeout
        while not await self._try(request):
            if time.monotonic() > over:
                said = "; ".join(f"{address}: {answer}" for address, answer in self._answers.items())
                raise NotAccepted(f"not enough members took it within {self.timeout:g} s ({said})")
            self.asked_again += 1
            await asyncio.sleep(RETRY_S)
        self.number += 1
        return self.number

    async def _try(self, request: Request) -> bool:
        """Ask one member after the other to publish it, and when one has, the next whether it has got it, too."""
        confirm = Request(request.cluster, request.client, request.number, b"", request.everywhere, ask=False)
        have: list[str] = []
        for address in self.via:
            if await self._ask(address, confirm if have else request):
                have.append(address)
            if len(have) == self.copies:
                break
        # The next event begins with a member that has this one: others may have to wait for it.
        self.via = [*have, *(address for address in self.via if address not in have)]
        return len(have) == self.copies

    async def _ask(self, address: str, request: Request) -> bool:
        """One member's answer, in time."""
        try:
            async with asyncio.timeout(self.patience):
                line = self._lines.get(address) or await self._connect(address)
                await line.say(request)
                word = await line.hear()
            if isinstance(word, Accepted) and word.number == request.number:
                self._answers[address] = "has it"
                return True
            self._answers[address] = word.reason if isinstance(word, Refused) else "makes no sense"
            return False
        except TimeoutError:
            self._answers[address] = f"no answer within {self.patience:g} s"
        except ssl.SSLError as error:
            self._answers[address] = str(refusal(error))
        except (OSError, ClusterClosed, RemoteError) as error:
            self._answers[address] = getattr(error, "strerror", None) or str(error) or type(error).__name__
        except asyncio.CancelledError:
            self._hang_up(address)  # its answer would be taken for that to the next question
            raise
        self._hang_up(address)
        return False

    async def _connect(self, address: str) -> Line:
        host, port = parse_address(address)
        reader, writer = await asyncio.open_connection(host, port, ssl=self._safety.client)
        line = self._lines[address] = Line(reader, writer, self._safety.guard)
        await line.say(Greeting())
        return line

    def _hang_up(self, address: str) -> None:
        line = self._lines.pop(address, None)
        if line is not None:
            line.close()
