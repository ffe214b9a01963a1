"""The levels: smallest examples, the definitions, and recorded histories of real databases."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.audit.history import cases
from tests.audit.history.reference import Reference
from tests.long import few
from whence.audit.history import History, HistoryReport, check, read
from whence.audit.history.formats import read_dbcop, read_jepsen, read_text
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.tables import from_table
from whence.errors import HistoryError

NUMBER = int(os.environ.get("WHENCE_HISTORIES", "3000"))
"""Generated histories; `make histories-long` takes 100,000."""


@pytest.mark.parametrize("pattern", cases.PATTERNS)
def test_the_smallest_example_of_each_pattern(pattern: str) -> None:
    text, weakest = cases.PATTERNS[pattern]
    history = cases.history(text)
    report = check(history, TRANSACTIONAL)
    broken = TRANSACTIONAL[TRANSACTIONAL.index(weakest) :]  # type: ignore[arg-type]
    assert report.levels == {level: level not in broken for level in TRANSACTIONAL}
    assert pattern in report.patterns
    cases.judged(history, report)


def test_a_session_that_does_not_see_its_own_write() -> None:
    report = check(cases.history("w(1,1,0,0) r(1,0,0,1)"))
    assert report.levels == {"RC": True, "RA": False, "TCC": False, "CC": False, "CCv": False}
    found = report.counterexample()
    assert found is not None and found.pattern == "FracturedReadCO" and found.guarantee == "read your writes"


@pytest.mark.parametrize(
    "text, words",
    [
        ("w(1,1,0,0) w(1,2,0,1) r(1,2,1,2) r(1,1,1,3)", "monotonic reads"),
        ("w(1,1,0,0) w(2,1,0,1) r(2,1,1,2) r(1,0,1,3)", "monotonic writes"),
        ("w(1,1,0,0) r(1,1,1,1) w(2,1,1,2) r(2,1,2,3) r(1,0,2,4)", "writes follow reads"),
    ],
)
def test_session_guarantees_in_words(text: str, words: str) -> None:
    found = check(cases.history(text)).counterexample()
    assert found is not None and found.guarantee == words


KNOWN = {
    "a": ("w(1,1,0,0) r(1,2,0,1) w(1,2,1,2) r(1,1,1,3)", "CC CM"),
    "b": ("w(3,1,0,0) w(1,1,0,1) w(2,1,0,2) w(1,2,1,3) r(3,0,1,4) r(2,1,1,5) r(1,2,1,6)", "CC CCv"),
    "c": ("w(1,1,0,0) w(1,2,1,1) r(1,1,1,2) r(1,2,1,3)", "CC"),
    "d": ("w(1,1,0,0) r(2,0,0,1) w(2,1,0,2) r(1,1,0,3) w(1,2,1,4) r(2,0,1,5) w(2,2,1,6) r(1,2,1,7)", "CC CM CCv"),
    "e": ("w(1,1,0,0) w(2,1,0,1) r(2,1,1,2) w(1,2,1,3) r(1,2,2,4) r(1,1,2,5)", ""),
}
"""Figure 3 of Bouajjani et al. 2017."""


@pytest.mark.parametrize("name", KNOWN)
def test_figure_3_of_bouajjani(name: str) -> None:
    text, holds = KNOWN[name]
    report = check(cases.history(text), ["CC", "CM", "CCv", "TCC"])
    assert {level for level, good in report.levels.items() if good and level != "TCC"} == set(holds.split())
    assert report.levels["CCv"] == report.levels["TCC"]


def agrees(history: History, report: HistoryReport) -> None:
    """With the definitions, in verdicts and counts."""
    found = Reference(history)
    assert report.levels == {level: found.holds(level) for level in TRANSACTIONAL}, list(history.rows())
    counts = {pattern: n for pattern, n in found.bad.items() if pattern and n}
    assert {p: n for p, n in report.patterns.items() if p in OF_READS} == counts
    cases.judged(history, report)


def test_the_reference_agrees() -> None:
    rng = Random(19)
    seen = set()
    for number in range(NUMBER):
        size, ops = rng.choice(((4, 3), (6, 4), (12, 3), (40, 60) if number % 50 == 0 else (5, 4)))
        repair = rng.random() < 0.3
        history = cases.generated(rng, size, rng.randint(1, 5), rng.randint(1, 4), rng.randint(1, ops), repair=repair)
        history.recorded = None if number % 2 else history.recorded
        report = check(history, TRANSACTIONAL, clock_bytes=rng.choice((1, 1 << 30)))
        agrees(history, report)
        seen.add(tuple(report.levels.values()))
    assert len(seen) == 4, "every verdict occurs"


@pytest.mark.parametrize("seed", few([31, 32, 33], 1))
def test_the_reference_agrees_on_lists(seed: int) -> None:
    rng = Random(seed)
    seen: set[str] = set()
    for number in range(600):
        shape = (rng.choice((4, 8, 30)), rng.randint(1, 5), rng.randint(1, 4), rng.choice((1, 3, 6)))
        history = cases.generated_lists(rng, *shape)
        history.recorded = None if number % 2 else history.recorded
        report = check(history, TRANSACTIONAL)
        agrees(history, report)
        seen |= set(report.patterns) | {level for level, good in report.levels.items() if good}
    assert seen >= {*OF_READS, *TRANSACTIONAL}, "everything occurs"


OF_READS = {
    "ThinAirRead", "AbortedRead", "FutureRead", "NotMyOwnWrite", "NotMyLastWrite", "IntermediateRead",
    "DuplicateElement", "IncompatibleOrder", "NonRepeatableRead",
}  # fmt: skip


@pytest.mark.parametrize("number", range(8))
def test_the_order_of_rows_and_transaction_numbers_do_not_matter(number: int, tmp_path: Path) -> None:
    """A text file, one session by session, one with transaction numbers that fall and blank lines, and a table of
    shuffled rows."""
    rng = Random(number)
    history = cases.generated(rng, 30, 4, 4, 4, repair=bool(number % 2))
    lines = [f"{kind}({key},{value or 0},{session},{txn})" for session, txn, kind, key, value in history.rows()]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    wanted = check(read(tmp_path / "a.txt"), TRANSACTIONAL).levels
    assert wanted == check(history, TRANSACTIONAL).levels
    (tmp_path / "b.txt").write_text("\n".join(sorted(lines, key=lambda line: line.split(",")[2], reverse=True)))
    assert check(read(tmp_path / "b.txt"), TRANSACTIONAL).levels == wanted
    text = re.sub(r"(\d+)\)", lambda found: f"{100 - int(found[1])})", "\n\n".join(lines))
    again = read_text(tmp_path / "a.txt", text.encode())
    assert check(again, TRANSACTIONAL).levels == wanted
    assert again.origin is not None and sorted(again.origin) == list(range(1, 2 * len(lines), 2))
    names = ("session", "txn", "op", "kind", "key", "value")
    rows = [
        dict(zip(names, (session, txn, i, kind, f"k{key}", value), strict=True))
        for i, (session, txn, kind, key, value) in enumerate(history.rows())
    ]
    rng.shuffle(rows)
    assert check(from_table(pa.Table.from_pylist(rows), "a"), TRANSACTIONAL).levels == wanted


def test_ccv_is_tcc_for_single_operations() -> None:
    rng = Random(20)
    verdicts = set()
    for _ in range(1000):
        history = cases.generated(rng, 7, 3, 2, single=True)
        report = check(history, ["TCC", "CC", "CM", "CCv"])
        assert report.levels["CCv"] == report.levels["TCC"]
        assert report.levels["CC"] or not (report.levels["CM"] or report.levels["CCv"]), "CC is the weakest"
        verdicts.add((report.levels["CM"], report.levels["CCv"]))
    assert len(verdicts) >= 3


def test_registers_are_refused_for_transactions() -> None:
    with pytest.raises(HistoryError, match="CC is defined for single operations"):
        check(cases.history("w(1,1,0,0) w(2,1,0,0)"), ["CC"])


recorded = pytest.mark.skipif(cases.DATA is None, reason=cases.WHY_SKIPPED)


@recorded
@pytest.mark.parametrize("large", few([False, True], 1))
def test_recorded_histories(large: bool) -> None:
    """Every one at every level; counts of patterns are those of an independent reference."""
    assert cases.DATA is not None
    for each in cases.recorded(large):
        path = cases.DATA / each["file"]
        path = path / "history.bincode" if (path / "history.bincode").exists() else path
        history = read(path)
        report = check(history, list(each["expected"]))
        assert report.levels == {k: v == "ok" for k, v in each["expected"].items()}, each["file"]
        transactional = {k: v for k, v in report.patterns.items() if k not in REGISTER_PATTERNS}
        if "CyclicCO" not in report.patterns:  # a cause of itself breaks every level: no other cycle is looked for
            assert transactional == each["patterns"], each["file"]
        assert (report.sessions, report.transactions, report.operations) == (
            each["sessions"],
            each["txns"],
            each["ops"],
        )
        cases.judged(history, report)


REGISTER_PATTERNS = ("WriteCOInitRead", "WriteCORead", "CyclicCF", "WriteHBInitRead", "CyclicHB")


def tiny() -> Iterator[tuple[dict[str, Any], History]]:
    assert cases.DATA is not None
    with gzip.open(cases.DATA / "tiny.jsonl.gz") as lines:
        for line in lines:
            each = json.loads(line)
            if each["kind"] == "list-append":
                yield each, read_jepsen(Path("tiny"), enumerate(each["history"], 1))
            else:
                yield each, read_dbcop(Path("tiny"), each["history"])


@recorded
def test_tiny_histories() -> None:
    for each, history in tiny():
        report = check(history, list(each["expected"]))
        assert report.levels == {k: v == "ok" for k, v in each["expected"].items()}, each["id"]
        cases.judged(history, report)
