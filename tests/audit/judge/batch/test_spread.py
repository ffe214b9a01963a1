"""A run that is judged in pieces: the same tables as in one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.audit.judge.batch.rows import judge, table_of
from tests.audit.judge.traces import cut, mixed_up, pairs, trace
from whence.audit.judge.batch import audited, outline, rated, spread, tables
from whence.audit.judge.rates import ABOVE, IN_DOUBT
from whence.audit.trace import Row

ALLOWED = 0.01


def in_one(rows: list[Row], complete: bool) -> dict[str, pa.Table]:
    a = judge(rows, complete)
    rates, doubts = rated.judged([rated.sample(a)], audited.everybody(a), audited.doubts(a), ALLOWED)
    return {
        "verdicts": tables.verdicts(a, "r", "c"),
        "members": tables.members(a, "r", "c"),
        "violations": tables.violations_table([*audited.found(a), *rated.wrong(rates)], "r", "c"),
        "rates": tables.rates_table(rates, "r", "c"),
        "doubts": tables.doubts_table(doubts, "r", "c"),
    }


def in_pieces(rows: list[Row], complete: bool, rng: random.Random) -> dict[str, pa.Table]:
    """Rows are scouted some at a time; members are judged in up to three pieces."""
    cuts = sorted(rng.choices(range(len(rows) + 1), k=3))
    chunks = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    plan = spread.to_follow([spread.scouted(table_of(chunk)) for chunk in chunks])
    place = {name: rng.randrange(3) for name in sorted({row.member for row in rows})}
    parts = ([row for row in rows if place[row.member] == k] for k in range(3))
    pieces = [table_of(part) for part in parts if part]
    outlines = [spread.outlined(piece, plan, complete) for piece in pieces]
    rebuilding = spread.rebuilding([head for head, _ in outlines], plan, complete)
    for k, (_, notes) in enumerate(outlines):
        rebuilding.add(k, notes)
    shared, reused, _ = rebuilding.rebuilt()
    if rng.random() < 0.5:
        shared = shared._replace(past=outline.with_vectors(shared.past))
    judged = [spread.judged(piece, shared, complete) for piece in pieces]
    ended = [spread.ended(a, shared, tables.members(a, "r", "c")) for a in judged]
    end = spread.at_the_end(shared, ended, complete)
    rates, doubts = rated.judged((piece.sample for piece in ended), end.everybody, end.doubts, ALLOWED)
    wrong = [f for a in judged for f in audited.found(a)] + reused + end.found + rated.wrong(rates)
    return {
        "verdicts": pa.concat_tables([tables.verdicts(a, "r", "c") for a in judged], promote_options="permissive"),
        "members": end.members,
        "violations": tables.violations_table(wrong, "r", "c"),
        "rates": tables.rates_table(rates, "r", "c"),
        "doubts": tables.doubts_table(doubts, "r", "c"),
    }


def same(one: dict[str, pa.Table], many: dict[str, pa.Table], why: Any) -> None:
    for name in one:
        mine, theirs = (sorted(map(str, found[name].to_pylist())) for found in (one, many))
        assert mine == theirs, (name, why)


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
