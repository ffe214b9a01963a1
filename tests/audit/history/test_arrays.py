"""The array form against the reference form: the same verdicts, and proofs that an independent verifier takes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

pytest.importorskip("numba")

from tests.audit.history import cases
from tests.long import few
from whence.audit.history import check, read
from whence.audit.history.arrays import check_columns
from whence.audit.history.columns import from_history, from_text
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.tables import from_table, history_of


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("pattern", cases.PATTERNS)
def test_the_patterns(pattern: str, blind: bool) -> None:
    history = cases.history(cases.PATTERNS[pattern][0])
    report = check_columns(from_history(history), TRANSACTIONAL, blind=blind)
    assert report.levels == check(history, TRANSACTIONAL).levels
    assert pattern in report.patterns
    cases.judged(history, report)


@pytest.mark.parametrize("seed", few([21, 23, 24], 1))
def test_both_forms_agree(seed: int) -> None:
    rng = Random(seed)
    for number in range(500):
        size = rng.choice((5, 10, 40))
        history = cases.generated(rng, size, rng.randint(1, 6), rng.randint(1, 6), rng.choice((1, 3, 5, 60)))
        if rng.random() < 0.5:
            cases.repaired(history)
        blind, room = bool(number % 2), rng.choice((1, 1 << 30))
        levels = (*TRANSACTIONAL, "CC", "CCv") if history.single else TRANSACTIONAL
        report = check_columns(from_history(history), levels, blind=blind, clock_bytes=room)
        assert report.levels == check(history, levels).levels, list(cases.rows(history))
        cases.judged(history, report)


@pytest.mark.parametrize("seed", few([31, 32, 33], 1))
def test_both_forms_agree_on_lists(seed: int) -> None:
    rng = Random(seed)
    seen: set[str] = set()
    for number in range(400):
        shape = (rng.choice((4, 8, 40)), rng.randint(1, 5), rng.randint(1, 4), rng.choice((1, 3, 6)))
        history = cases.generated_lists(rng, *shape)
        report = check_columns(from_history(history), TRANSACTIONAL, blind=bool(number % 2))
        wanted = check(history, TRANSACTIONAL)
        assert report.levels == wanted.levels, list(cases.rows(history))
        bad = {pattern: count for pattern, count in wanted.patterns.items() if pattern in OF_READS}
        assert {pattern: count for pattern, count in report.patterns.items() if pattern in OF_READS} == bad
        cases.judged(history, report)
        seen |= set(report.patterns) | {level for level, good in report.levels.items() if good}
    assert seen >= {*OF_READS, *TRANSACTIONAL}, "everything occurs"


OF_READS = {
    "ThinAirRead", "AbortedRead", "FutureRead", "NotMyOwnWrite", "NotMyLastWrite", "IntermediateRead",
    "DuplicateElement", "IncompatibleOrder", "NonRepeatableRead",
}  # fmt: skip


def test_the_order_of_sessions_means_nothing() -> None:
    rng = Random(22)
    for _ in range(200):
        history = cases.generated(rng, 8, 4, 3, 3)
        before = check_columns(from_history(history), TRANSACTIONAL).levels
        names = list(history.sessions)
        rng.shuffle(names)
        history.sessions = {name: history.sessions[name] for name in names}
        assert (
            check_columns(from_history(history), TRANSACTIONAL).levels == before == check(history, TRANSACTIONAL).levels
        )


@pytest.mark.skipif(cases.DATA is None, reason=cases.WHY_SKIPPED)
@pytest.mark.parametrize("large", few([False, True], 1))
@pytest.mark.parametrize("blind", [False, True])
def test_recorded_histories(blind: bool, large: bool) -> None:
    assert cases.DATA is not None
    for each in cases.recorded(large):
        path = cases.DATA / each["file"]
        path = path / "history.bincode" if (path / "history.bincode").exists() else path
        history = read(path)
        wanted = {level: good == "ok" for level, good in each["expected"].items() if level != "CM"}
        report = check_columns(from_history(history), list(wanted), blind=blind)
        assert report.levels == wanted, each["file"]
        assert set(report.patterns) >= {"ThinAirRead", "IntermediateRead"} & set(each["patterns"])
        cases.judged(history, report)


@pytest.mark.parametrize("number", range(20))
def test_large_files_are_read_as_small_ones_are(number: int, tmp_path: Path) -> None:
    """Text and Parquet as columns: the same verdicts as by objects."""
    rng = Random(number)
    history = cases.generated(rng, 30, 4, 4, 4)
    if number % 2:
        cases.repaired(history)
    lines = [
        f"{'w' if op.write else 'r'}({op.key},{op.value or 0},{txn.session},{txn.name})"
        for txn in history.txns()
        for op in txn.ops
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    wanted = check(read(tmp_path / "a.txt"), TRANSACTIONAL).levels
    report = check_columns(from_text(tmp_path / "a.txt"), TRANSACTIONAL)
    assert report.levels == wanted
    rows = [
        {
            "session": txn.session,
            "txn": int(txn.name),
            "op": i,
            "kind": "w" if op.write else "r",
            "key": f"k{op.key}",
            "value": op.value,
        }
        for txn in history.txns()
        for i, op in enumerate(txn.ops)
    ]
    rng.shuffle(rows)
    table = pa.Table.from_pylist(rows)
    assert check_columns(from_table(table, "a"), TRANSACTIONAL).levels == wanted
    assert check(history_of(table, "a"), TRANSACTIONAL).levels == wanted
