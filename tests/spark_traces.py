"""Traces with injected wrongs of known identity, made by array operations: 10^7 rows take seconds.

Runs of `members` members of which the first `origins` publish in turn. Every member delivers every event, each in its own
order, which respects happened-before; then the wrongs are put in, each at a place of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True)
class Injected:
    """What was put in; each as (run, member, event), or (run, bare event id / ticket:incarnation) where no member is."""

    inverted: set[tuple[str, str, str]] = field(default_factory=set)
    """Delivered after something that it precedes."""
    gaps: set[tuple[str, str, str]] = field(default_factory=set)
    """Never delivered at this member, though what follows was."""
    duplicates: set[tuple[str, str, str]] = field(default_factory=set)
    """Delivered a second time."""
    owners: set[tuple[str, str]] = field(default_factory=set)
    """(run, `ticket:incarnation`) of the second of two tenures that overlap."""
    reused: set[tuple[str, str]] = field(default_factory=set)
    """(run, event id without its owner) published twice."""


def make(
    rows: int,
    *,
    runs: int = 20,
    origins: int = 25,
    members: int = 200,
    wrongs: int = 20,
    order: str = "reliable",
    seed: int = 1,
) -> tuple[list[pa.Table], Injected]:
    """About `rows` rows: a table per run (columns of trace schema v1), with `wrongs` of each kind over all runs."""
    raise NotImplementedError


def write(tables: list[pa.Table], out: Path, *, layout: str = "run", files: int = 8) -> list[Path]:
    """As Parquet files. `layout`: `run` (a file per run) or `mixed` (`files` files, each with rows of all runs)."""
    raise NotImplementedError
