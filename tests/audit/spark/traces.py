"""Traces with injected wrongs of known identity, made by array operations: 10^7 rows take seconds.

A run goes in rounds. In each, every origin publishes one event, having delivered all of the rounds before, and then
every member delivers all events of the round, each in an order of its own: that respects happened-before, and events of
one round are concurrent. Then the wrongs are put in, each at a member of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from whence.audit.trace.parquet import ENCODINGS
from whence.audit.trace.schema import COLUMNS

KINDS = ("join", "ticket", "publish", "deliver")
JOIN, TICKET, PUBLISH, DELIVER = range(4)
REASONS = ("genesis", "owner 1.0.1", "owner 1.0.2")
ROUND = 1_000_000
"""ns."""
GROUP = 65_536
"""Rows of a row group."""

Wrong = tuple[str, str, str]
"""Run, member, event."""


@dataclass(frozen=True)
class Injected:
    """What was put in."""

    inverted: set[Wrong] = field(default_factory=set)
    """Delivered after something that it precedes."""
    gaps: set[Wrong] = field(default_factory=set)
    """Never delivered at this member, though what follows was."""
    openers: set[Wrong] = field(default_factory=set)
    """The delivery that skipped each of the two above: it is over a gap."""
    duplicates: set[Wrong] = field(default_factory=set)
    """Delivered a second time."""
    owners: set[tuple[str, str]] = field(default_factory=set)
    """(run, member) of the second owner of a ticket at one time."""
    reused: set[Wrong] = field(default_factory=set)
    """Published once more."""


@dataclass
class _Rows:
    """One run, before it is a table: a column a field, by round and member."""

    member: np.ndarray[Any, Any]
    kind: np.ndarray[Any, Any]
    event: np.ndarray[Any, Any]
    reason: np.ndarray[Any, Any]
    t: np.ndarray[Any, Any]

    def each(self, change: Any) -> None:
        for name in ("member", "kind", "event", "reason", "t"):
            setattr(self, name, change(getattr(self, name)))


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
    injected = Injected()
    share = [len(range(r, wrongs, runs)) for r in range(runs)]
    rounds = max(4, rows // runs // (members * origins + origins))
    assert 5 * max(share) <= members - origins, "each wrong needs a member of its own"
    tables = [
        _run(f"run-{r:04d}", rounds, origins, members, share[r], order, np.random.default_rng((seed, r)), injected)
        for r in range(runs)
    ]
    return tables, injected


def make_long(
    rows: int, parts: int, *, origins: int = 25, members: int = 200, wrongs: int = 20, seed: int = 1
) -> Iterator[pa.Table]:
    """One run, a part at a time, so that its size is not that of memory. The wrongs are in the first part."""
    rounds = max(4, rows // parts // (members * origins + origins))
    steps = np.zeros(members, np.int64)
    for part in range(parts):
        rng = np.random.default_rng((seed, part))
        before = (part * rounds, steps)
        yield _run("run-0000", rounds, origins, members, 0 if part else wrongs, "reliable", rng, Injected(), before)


def event_of(origin: int, seq: int) -> str:
    return f"{origin}:1.0.1:{seq}@m{origin}#1"


def _run(
    run: str, rounds: int, origins: int, members: int, wrongs: int, order: str, rng: Any, injected: Injected,
    before: tuple[int, Any] | None = None,
) -> pa.Table:  # fmt: skip
    """`before`: the rounds before the first one of these, and the steps of each member in them, to which these are
    added."""
    first, steps = before or (0, np.zeros(members, np.int64))
    at = _deliveries(rounds, origins, members, rng)
    names = [f"m{m}#1" for m in range(members)]
    who = iter(rng.permutation(np.arange(origins, members)).tolist())
    drop: list[tuple[int, int, int]] = []  # (round, member, slot) of deliveries
    again: list[tuple[int, int, int]] = []
    for _ in range(wrongs):
        # Inverted: the last of a round changes places with the first of the next one.
        m, r = next(who), int(rng.integers(0, rounds - 2))
        at[r, m, -1], at[r + 1, m, 0] = at[r + 1, m, 0], at[r, m, -1]
        injected.inverted.add((run, names[m], _name(at[r + 1, m, 0], origins)))
        injected.openers.add((run, names[m], _name(at[r, m, -1], origins)))
        m, r, slot = next(who), int(rng.integers(0, rounds - 2)), int(rng.integers(0, origins))
        drop.append((r, m, slot))
        injected.gaps.add((run, names[m], _name(at[r, m, slot], origins)))
        injected.openers.add((run, names[m], _name(at[r + 1, m, 0], origins)))
        m, r, slot = next(who), int(rng.integers(0, rounds - 2)), int(rng.integers(0, origins))
        again.append((r, m, slot))
        injected.duplicates.add((run, names[m], _name(at[r, m, slot], origins)))
    rows = _steps(at, drop, again, joined=first > 0)
    for _ in range(wrongs):
        _second_owner(rows, next(who), int(rng.integers(1, rounds - 1)), injected, run)
        _second_use(rows, int(rng.integers(0, origins)), int(rng.integers(1, rounds)), origins, injected, run)
    return _table(run, rows, (first, first + rounds), origins, steps, order)


def _name(event: int, origins: int) -> str:
    return event_of(int(event) % origins, int(event) // origins + 1)


def _deliveries(rounds: int, origins: int, members: int, rng: Any) -> np.ndarray[Any, Any]:
    """[round, member, slot] -> event, numbered by round and origin. An origin delivers its own event first."""
    order = rng.random((rounds, members, origins), dtype=np.float32)
    order[:, np.arange(origins), np.arange(origins)] = -1.0
    out = np.argsort(order, axis=2).astype(np.int32)
    out += (np.arange(rounds, dtype=np.int32) * origins)[:, None, None]
    return out


def _steps(
    at: np.ndarray[Any, Any], drop: list[tuple[int, int, int]], again: list[tuple[int, int, int]], joined: bool
) -> _Rows:
    rounds, members, origins = at.shape
    member = np.broadcast_to(np.arange(members, dtype=np.int16)[None, :, None], (rounds, members, origins + 1))
    event = np.full((rounds, members, origins + 1), -1, np.int32)  # slot 0: an origin's publish
    event[:, :origins, 0] = np.arange(rounds * origins).reshape(rounds, origins)
    event[:, :, 1:] = at
    kind = np.full(event.shape, DELIVER, np.int8)
    kind[:, :, 0] = PUBLISH
    times = np.ones(event.shape, np.int8)
    times[:, origins:, 0] = 0
    for r, m, slot in drop:
        times[r, m, slot + 1] = 0
    for r, m, slot in again:
        times[r, m, slot + 1] = 2
    t = (np.arange(rounds)[:, None, None] + 1) * ROUND + np.arange(origins + 1)[None, None, :] * 1000 + member
    rows = _Rows(member.ravel(), kind.ravel(), event.ravel(), np.full(event.size, -1, np.int8), t.ravel())
    keep = np.repeat(np.arange(event.size), times.ravel())
    rows.each(lambda column: column[keep])
    if joined:
        return rows
    first = np.arange(members, dtype=np.int16)
    owners = np.arange(origins, dtype=np.int16)
    new = {
        "member": np.concatenate([first, owners]),
        "kind": np.concatenate([np.full(members, JOIN), np.full(origins, TICKET)]).astype(np.int8),
        "event": np.concatenate([np.full(members, -1), owners]).astype(np.int32),  # of a TICKET row: which
        "reason": np.concatenate([np.zeros(members), np.ones(origins)]).astype(np.int8),
        "t": np.concatenate([first, owners]).astype(np.int64),
    }
    for name, values in new.items():
        setattr(rows, name, np.concatenate([values, getattr(rows, name)]))
    return rows


def _second_owner(rows: _Rows, m: int, r: int, injected: Injected, run: str) -> None:
    """m becomes the owner of ticket 0 in mid-run, whose owner goes on publishing to the end. Each in another run gets a
    ticket of its own."""
    ticket = len([1 for x in injected.owners if x[0] == run])
    _insert(rows, int(np.flatnonzero((rows.member == m) & (rows.t >= (r + 1) * ROUND))[0]), m, TICKET, ticket, 2, r)
    injected.owners.add((run, f"m{m}#1"))


def _second_use(rows: _Rows, o: int, r: int, origins: int, injected: Injected, run: str) -> None:
    """Origin o publishes its first event once more, in round r."""
    if (run, f"m{o}#1", event_of(o, 1)) in injected.reused:
        return
    place = np.flatnonzero((rows.member == o) & (rows.kind == PUBLISH) & (rows.event == r * origins + o))[0]
    _insert(rows, int(place), o, PUBLISH, o, -1, r)
    injected.reused.add((run, f"m{o}#1", event_of(o, 1)))


def _insert(rows: _Rows, place: int, member: int, kind: int, event: int, reason: int, r: int) -> None:
    values = {"member": member, "kind": kind, "event": event, "reason": reason, "t": (r + 1) * ROUND}
    for name, value in values.items():
        setattr(rows, name, np.insert(getattr(rows, name), place, value))


def _table(
    run: str, rows: _Rows, rounds: tuple[int, int], origins: int, steps: np.ndarray[Any, Any], order: str
) -> pa.Table:
    n, members = len(rows.member), len(steps)
    by_member = np.argsort(rows.member, kind="stable")
    begin = np.searchsorted(rows.member[by_member], np.arange(members))
    lseq = np.empty(n, np.int64)
    lseq[by_member] = np.arange(n) + (steps - begin)[rows.member[by_member]]
    steps += np.bincount(rows.member, minlength=members)
    names = [f"m{m}#1" for m in range(members)]
    ids = [event_of(e % origins, e // origins + 1) for e in range(rounds[0] * origins, rounds[1] * origins)]
    of_event = (rows.kind == PUBLISH) | (rows.kind == DELIVER)
    event = np.where(of_event, rows.event, -1)
    ticket = np.where(of_event, rows.event % origins, np.where(rows.kind == TICKET, rows.event, -1)).astype(np.int32)

    def texts(codes: Any, values: Any) -> Any:
        codes = np.asarray(codes, np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), pa.array(values, pa.string()))

    zeros = np.zeros(n, np.int32)
    columns: dict[str, Any] = {
        "version": np.ones(n, np.int32),
        "run": texts(zeros, [run]),
        "cluster": texts(zeros, ["main"]),
        "member": texts(rows.member, names),
        "lseq": lseq,
        "t_ns": rows.t + rounds[0] * ROUND,
        "kind": texts(rows.kind, KINDS),
        "event": texts(event, ids),
        "origin": texts(np.where(event >= 0, event % origins, -1), names),
        "ticket": pa.array(ticket, mask=ticket < 0),
        "reason": texts(rows.reason, REASONS),
        "order": texts(np.where(rows.kind == JOIN, 0, -1), [order]),
    }
    for column in COLUMNS:
        kind = {"text": pa.string(), "int32": pa.int32(), "int64": pa.int64()}[column.type]
        columns.setdefault(column.name, pa.nulls(n, kind))
    return pa.table({column.name: columns[column.name] for column in COLUMNS})


def write(tables: list[pa.Table], out: Path, *, layout: str = "run", files: int = 8) -> list[Path]:
    """As Parquet files, with the row groups and encodings our own writer makes. `layout`: `run` (a file per run) or
    `mixed` (`files` files, in each a part of every run, interleaved)."""
    out.mkdir(parents=True, exist_ok=True)
    if layout == "run":
        parts = tables
    else:
        parts = [
            _interleaved([t.slice(t.num_rows * f // files, _size(t, f, files)) for t in tables]) for f in range(files)
        ]
    paths = [out / f"part-{k:04d}.parquet" for k in range(len(parts))]
    for path, table in zip(paths, parts, strict=True):
        write_file([table], path)
    return paths


def write_file(tables: Iterable[pa.Table], path: Path) -> int:
    """One file, as our own writer makes it: the ids in a row group's dictionary are those of its own rows. (Of a column
    that is a dictionary all of it is written with each group.) Gives the number of rows."""
    first = next(each := iter(tables))
    at, rows = first.schema.get_field_index("event"), 0
    schema = first.schema.set(at, pa.field("event", pa.string()))
    with pq.ParquetWriter(path, schema, **ENCODINGS) as writer:
        for table in chain([first], each):
            for group in range(0, table.num_rows, GROUP):
                part = table.slice(group, GROUP)
                writer.write_table(part.set_column(at, "event", part["event"].cast(pa.string())), row_group_size=GROUP)
            rows += table.num_rows
    return rows


def _size(table: pa.Table, f: int, files: int) -> int:
    return table.num_rows * (f + 1) // files - table.num_rows * f // files


def _interleaved(tables: list[pa.Table], piece: int = 1000) -> pa.Table:
    pieces = [(k, r, t.slice(k * piece, piece)) for r, t in enumerate(tables) for k in range(-(-t.num_rows // piece))]
    return (
        pa.concat_tables([t for _, _, t in sorted(pieces, key=lambda p: p[:2])]).unify_dictionaries().combine_chunks()
    )


def spoil(trace: Path, tables: list[pa.Table]) -> dict[str, str]:
    """Bad files of every kind into a directory; name -> a word of the reason that has to be given."""
    trace.mkdir(parents=True, exist_ok=True)
    pq.write_table(tables[3], trace / "whole.parquet")
    whole = (trace / "whole.parquet").read_bytes()
    (trace / "whole.parquet").unlink()
    (trace / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (trace / "empty.parquet").write_bytes(b"")
    (trace / "noise.parquet").write_bytes(bytes(range(256)) * 40)
    (trace / "headless.parquet").write_bytes(b"PAR1" + b"\0" * 100)
    pq.write_table(pa.table({"name": ["x"], "value": [1]}), trace / "foreign.parquet")
    at = tables[3].schema.get_field_index("lseq")
    pq.write_table(tables[3].set_column(at, "lseq", tables[3]["lseq"].cast(pa.string())), trace / "typed.parquet")
    (trace / "noise.jsonl").write_bytes(b"\xff\xfe\x00\n{]\nnull\n")
    return {
        "truncated.parquet": "truncated",
        "empty.parquet": "empty",
        "noise.parquet": "not a Parquet file",
        "headless.parquet": "damaged",
        "foreign.parquet": "no column 'run', 'cluster', 'member', 'lseq', 'kind', 'event'",
        "typed.parquet": "column 'lseq' is string",
        "noise.jsonl": "",
    }
