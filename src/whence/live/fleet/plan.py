"""Plans: what to do to a fleet, and when. Pure: the same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

DOWN_S: Final = (0.0, 0.3, 1.0)
"""Possible seconds between a kill and the restart."""


@dataclass(frozen=True, slots=True)
class Step:
    """One action on some processes of a fleet."""

    after: float
    """Seconds after the previous step."""
    do: Literal["kill", "start", "cut", "heal", "wait"]
    processes: tuple[int, ...] = ()
    """By number; for a cut, one side of the partition."""
    say: str = ""
    """A message for people, when it is done."""


def kills(rng: random.Random, processes: int, every: float) -> Iterator[Step]:
    """Kill and restart random processes, one about every `every` seconds, endlessly."""
    while True:
        one = rng.randrange(processes)
        yield Step(every * rng.uniform(0.5, 1.5), "kill", (one,), f"kill -9 of process {one}")
        yield Step(rng.choice(DOWN_S), "start", (one,), f"process {one} is back")
