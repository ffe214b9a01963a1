"""What happens to a fleet, and when. Pure: the same seed gives the same plan."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

DOWN_S: Final = (0.0, 0.3, 1.0)
"""Seconds between a kill and the restart, one of these."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is done to some processes of a fleet."""

    after: float
    """Seconds after the step before it was done."""
    do: Literal["kill", "start", "cut", "heal", "wait"]
    processes: tuple[int, ...] = ()
    """By number; of a cut: the side that is cut off from the others."""
    say: str = ""
    """For people, when it is done."""


def kills(rng: random.Random, processes: int, every: float) -> Iterator[Step]:
    """One process after the other is killed, about `every` seconds, and started again. Without end."""
    while True:
        one = rng.randrange(processes)
        yield Step(every * rng.uniform(0.5, 1.5), "kill", (one,), f"kill -9 of process {one}")
        yield Step(rng.choice(DOWN_S), "start", (one,), f"process {one} is back")
