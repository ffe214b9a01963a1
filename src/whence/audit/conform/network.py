"""The network between the nodes, controlled by the kit: what arrives, when, and how often.

Nothing here takes time. A message is passed on when it is sent, held until the scenario releases it, or lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from whence.errors import AdapterError

MAX_KEPT: Final = 50_000
"""The most messages held at a time, and the most remembered for a replay (the oldest are dropped)."""

Link = tuple[str, str]
"""(source, destination)."""


class Parcel(NamedTuple):
    """A message in transit."""

    src: str
    dest: str
    line: bytes


@dataclass
class Counts:
    """Counts of messages."""

    sent: int = 0
    handed: int = 0
    held: int = 0
    lost: int = 0
    repeated: int = 0


class Network:
    """Links in one direction each, `pass`, `hold`, `lose` or `twice`."""

    def __init__(self, hand_over: Callable[[str, bytes], bool], note: Callable[[str, str], None]) -> None:
        """`hand_over(dest, line)` returns whether the node is running; `note(dest, text)` records changes of a link."""
        self.counts = Counts()
        self.handed: dict[Link, int] = {}
        """Messages handed over so far."""
        self.lost: dict[Link, int] = {}
        """Messages lost so far on links that lose."""
        self._hand_over = hand_over
        self._note = note
        self._modes: dict[Link, str] = {}
        self._held: list[Parcel] = []
        self._past: deque[Parcel] = deque(maxlen=MAX_KEPT)

    def route(self, parcel: Parcel) -> None:
        """A node sends a message to another."""
        self.counts.sent += 1
        link = (parcel.src, parcel.dest)
        match self._modes.get(link, "pass"):
            case "hold":
                self.counts.held += 1
                self._held.append(parcel)
                if len(self._held) > MAX_KEPT:
                    raise AdapterError(f"more than {MAX_KEPT} messages were sent while links were held")
            case "lose":
                self.counts.lost += 1
                self.lost[link] = self.lost.get(link, 0) + 1
            case "twice":
                self._hand(parcel)
                self._hand(parcel)
                self.counts.repeated += 1
            case _:
                self._hand(parcel)

    def set(self, mode: str, links: list[Link]) -> None:
        """Set the mode of links; held messages stay held."""
        for link in links:
            self._modes[link] = mode
            self._note(link[1], f"{mode} {link[0]} -> {link[1]}")

    def release(self, links: list[Link], newest_first: bool = False) -> None:
        """Pass on what is held on these links, and let them pass from now on."""
        self.set("pass", links)
        free = [p for p in self._held if (p.src, p.dest) in links]
        self._held = [p for p in self._held if (p.src, p.dest) not in links]
        for parcel in reversed(free) if newest_first else free:
            self._hand(parcel)

    def replay(self, dest: str) -> int:
        """Repeat all messages to this node, the newest first."""
        again = [p for p in self._past if p.dest == dest]
        self._note(dest, f"replay {len(again)} messages")
        for parcel in reversed(again):
            self._hand_over(dest, parcel.line)
        self.counts.repeated += len(again)
        return len(again)

    def _hand(self, parcel: Parcel) -> None:
        if self._hand_over(parcel.dest, parcel.line):
            link = (parcel.src, parcel.dest)
            self.counts.handed += 1
            self.handed[link] = self.handed.get(link, 0) + 1
            self._past.append(parcel)
        else:
            self.counts.lost += 1
