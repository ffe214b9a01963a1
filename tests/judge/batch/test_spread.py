"""A run that is judged in pieces: the same tables as in one."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from tests.judge.batch.rows import judge, step, table_of
from tests.judge.traces import cut, pairs, trace
from whence.judge.batch import audited, rated, spread, tables
from whence.judge.follow import owner_of
from whence.judge.rates import ABOVE, IN_DOUBT
from whence.trace import Row

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
    """Rows are scouted some at a time; members that nobody depends on are judged in up to three pieces."""
    cuts = sorted(rng.choices(range(len(rows) + 1), k=3))
    chunks = [rows[a:b] for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True)]
    names, needed = spread.to_follow([spread.scouted(table_of(chunk)) for chunk in chunks])
    others = sorted({row.member for row in rows} - names)
    place = {name: rng.randrange(3) for name in others}
    pieces = [[row for row in rows if place.get(row.member) == k] for k in range(3)]
    first = [row for row in rows if row.member in names]
    shared, judged = spread.nothing(), []
    if first:
        a, shared = spread.followed(table_of(first), needed, complete)
        judged.append(a)
    judged += [spread.others(table_of(piece), shared, complete) for piece in pieces if piece]
    ended = [spread.ended(a, tables.members(a, "r", "c")) for a in judged]
    end = spread.at_the_end(shared, ended, complete)
    rates, doubts = rated.judged((piece.sample for piece in ended), end.everybody, end.doubts, ALLOWED)
    wrong = [f for a in judged for f in audited.found(a)] + end.found + rated.wrong(rates)
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


def test_generated_traces_whole_and_with_parts_cut_out() -> None:
    for seed in range(40):
        rows, complete, rng = trace(seed, wrong=seed % 3 > 0), seed % 2 == 0, random.Random(seed)
        for mine in (rows, cut(rows, rng)):
            if mine:
                same(in_one(mine, complete), in_pieces(mine, complete, rng), seed)


def test_owners_by_the_ids_of_events() -> None:
    ids = ["0:1.0.1:3@m0#1", "m1#1/7", "a/b#1/2", "@", "x", "", "/3", "1:0.1.2:1@a@b#1", "9@", None, "m1#1/8"]
    found = spread.scouted(table_of([step("q#1", n, "deliver", event) for n, event in enumerate(ids)]))
    assert found.owners == {owner for owner in map(owner_of, ids) if owner}


def test_the_error_rate_of_all_pieces() -> None:
    """Events that are inverted at members of different pieces are one clump."""
    rows = pairs(30, dict.fromkeys(range(5, 25), 2))
    for complete, outcome in ((True, ABOVE), (False, IN_DOUBT)):
        one, many = in_one(rows, complete), in_pieces(rows, complete, random.Random(1))
        same(one, many, complete)
        (found,) = many["rates"].to_pylist()
        assert (found["outcome"], found["deliveries"], found["inverted"], found["clump"]) == (outcome, 240, 40, 2.0)
        assert [v["rule"] for v in many["violations"].to_pylist()] == (["rate"] if complete else [])
