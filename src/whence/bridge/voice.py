"""Publishing for others in one cluster, whatever the ring does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from whence.api import Cluster, Coordination, Seat
from whence.errors import LostTicket, NoTicket

log = logging.getLogger("whence.bridge")

TICKET_S = 10.0
"""Seconds without a ticket until it is said why there is none; it is asked for as long as it takes."""


class Voice:
    """Publishes in one cluster, all that it is given, in order: a lost ticket is asked for again."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._sitting: tuple[Coordination, Seat] | None = None
        self._turn = asyncio.Lock()

    async def say(self, payloads: Sequence[bytes]) -> list[str]:
        """Publish; returns the ids when they are on their way, and in the journal, if there is one."""
        ids: list[str] = []
        async with self._turn:
            while len(ids) < len(payloads):
                seat = await self._seat()
                try:
                    ids += await seat.publish_many(payloads[len(ids) :], unread=True)
                except LostTicket as lost:
                    ids += lost.published
                    log.warning("%s: %s; asking for another", self.cluster.name, lost)
                    await self.stand_up()
        return ids

    async def sit(self) -> None:
        """Have a ticket before there is something to say."""
        async with self._turn:
            await self._seat()

    async def _seat(self) -> Seat:
        while self._sitting is None:
            coordination = self.cluster.coordinate(TICKET_S)
            try:
                self._sitting = coordination, await coordination.__aenter__()
            except NoTicket as none:
                log.warning("%s; still trying", none)
        return self._sitting[1]

    async def stand_up(self) -> None:
        """Give the ticket back, if it has one."""
        sitting, self._sitting = self._sitting, None
        if sitting is not None:
            await sitting[0].__aexit__(None, None, None)
