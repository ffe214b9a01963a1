"""A run that is judged in pieces: the same tables as in one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from tests.audit.judge.batch.rows import judge, table_of
from tests.audit.judge.traces import cut, mixed_up, pairs, trace
from whence.audit.judge.batch import audited, pieces, tables
from whence.audit.judge.batch.rates import ABOVE, IN_DOUBT
from whence.audit.trace import Row

ALLOWED = 0.01
RUNS = [("r", "c")]


def in_one(rows: list[Row], complete: bool, runs: list[tuple[str, str]] = RUNS) -> dict[str, pa.Table]:
    a = judge(rows, complete)
    assert a.coded.runs == runs
    doubts = audited.doubts(a)
    rates = audited.rates(a, doubts, ALLOWED)
    return {
        "verdicts": tables.verdicts(a),
        "members": tables.members(a),
        "violations": tables.violations_table([*audited.found(a), *audited.too_many(rates)], runs),
        "rates": tables.rates_table(rates, runs),
        "doubts": tables.doubts_table(doubts, runs),
    }


def in_pieces(rows: list[Row], complete: bool, rng: random.Random) -> dict[str, pa.Table]:
    """Rows are scouted some at a time; members are judged in up to three pieces."""
    cuts = sorted(rng.choices(range(len(rows) + 1), k=3))
    chunks = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    needed = pieces.together([pieces.scouted(table_of(chunk)) for chunk in chunks])
    place = {name: rng.randrange(3) for name in sorted({row.member for row in rows})}
    parts = ([row for row in rows if place[row.member] == k] for k in range(3))
    mine = [table_of(part) for part in parts if part]
    shared, of_steps = pieces.rebuilt([pieces.outlined(piece, needed, complete) for piece in mine], needed, complete)
    judged = [pieces.judged(piece, shared, complete) for piece in mine]
    ended = [pieces.ended(one, shared, tables.members(one.audited)) for one in judged]
    end = pieces.at_the_end(shared, ended, complete)
    rates = [(0, audited.rated(end.samples, 0, end.audited, end.doubts, ALLOWED))] if end.samples else []
    wrong = [f for one in judged for f in audited.found(one.audited)] + of_steps + end.found + audited.too_many(rates)
    every = [tables.verdicts(one.audited) for one in judged]
    return {
        "verdicts": pa.concat_tables(every, promote_options="permissive"),
        "members": end.members,
        "violations": tables.violations_table(wrong, RUNS),
        "rates": tables.rates_table(rates, RUNS),
        "doubts": tables.doubts_table(end.doubts, RUNS),
    }


def same(one: dict[str, pa.Table], many: dict[str, pa.Table], why: Any) -> None:
    for name in one:
        mine, theirs = (sorted(map(str, found[name].to_pylist())) for found in (one, many))
        assert mine == theirs, (name, why)


def test_many_runs_in_one_call() -> None:
    """Each is judged as if it were alone, though they have members, ids and tokens in common."""
    runs = [[replace(row, run=f"r{seed}") for row in trace(seed, wrong=seed % 3 > 0)] for seed in range(24)]
    runs += [[replace(row, run=f"cut {rows[0].run}") for row in cut(rows, random.Random(1))] for rows in runs]
    every = [row for rows in runs for row in rows]
    random.Random(2).shuffle(every)
    for complete in (False, True):
        alone = [in_one(rows, complete, [(rows[0].run, "c")]) for rows in runs if rows]
        together = {
            name: pa.concat_tables([one[name] for one in alone], promote_options="permissive") for name in alone[0]
        }
        same(together, in_one(every, complete, sorted({(row.run, "c") for row in every})), complete)


@pytest.mark.parametrize("everybody", [False, True])
def test_generated_traces_whole_and_with_parts_cut_out(everybody: bool) -> None:
    """Some members publish, or all; wrongs are put in, rows are cut out, steps change places."""
    for seed in range(16):
        rows, complete = trace(seed, wrong=seed % 3 > 0, everybody=everybody), seed % 2 == 0
        rng = random.Random(seed)
        for mine in (rows, cut(rows, rng), mixed_up(rows, rng)):
            if mine:
                same(in_one(mine, complete), in_pieces(mine, complete, rng), seed)


def test_the_error_rate_of_all_pieces() -> None:
    """Events that are inverted at members of different pieces are one clump."""
    rows = pairs(30, dict.fromkeys(range(5, 25), 2))
    for complete, outcome in ((True, ABOVE), (False, IN_DOUBT)):
        one, many = in_one(rows, complete), in_pieces(rows, complete, random.Random(1))
        same(one, many, complete)
        (found,) = many["rates"].to_pylist()
        assert (found["outcome"], found["deliveries"], found["inverted"], found["clump"]) == (outcome, 240, 40, 2.0)
        assert [v["rule"] for v in many["violations"].to_pylist()] == (["rate"] if complete else [])
