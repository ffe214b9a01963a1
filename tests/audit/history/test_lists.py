"""Lists: what a read of a whole list shows, and what it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.audit.history import cases
from whence.audit.history import HistoryReport, check
from whence.audit.history.formats import read_jepsen


def checked(*txns: tuple[int, list[list[object]]]) -> HistoryReport:
    rows = [{"type": "ok", "process": p, "f": "txn", "value": ops} for p, ops in txns]
    history = read_jepsen(Path("lists"), enumerate(rows, 1))
    report = check(history)
    cases.judged(history, report)
    return report


def test_a_good_one() -> None:
    report = checked(
        (0, [["append", 1, 1], ["append", 1, 2], ["r", 1, [1, 2]]]),
        (1, [["r", 1, [1, 2]], ["append", 1, 3]]),
        (2, [["r", 1, []]]),
    )
    assert report.holds and report.certified == "TCC"


@pytest.mark.parametrize(
    "pattern, txns",
    [
        ("ThinAirRead", [(0, [["r", 1, [7]]])]),
        ("FutureRead", [(0, [["r", 1, [7]], ["append", 1, 7]])]),
        ("DuplicateElement", [(0, [["append", 1, 1]]), (1, [["r", 1, [1, 1]]])]),
        ("IntermediateRead", [(0, [["append", 1, 1], ["append", 1, 2]]), (1, [["r", 1, [1]]])]),
        ("NotMyOwnWrite", [(0, [["append", 1, 1]]), (1, [["append", 1, 2], ["r", 1, [1]]])]),
        ("NotMyLastWrite", [(0, [["append", 1, 1], ["append", 1, 2], ["r", 1, [1]]])]),
        (
            "IncompatibleOrder",
            [(0, [["append", 1, 1]]), (1, [["append", 1, 2]]), (2, [["r", 1, [1, 2]]]), (3, [["r", 1, [2]]])],
        ),
        (
            "CyclicVersionOrder",
            [
                (0, [["append", 1, 1], ["append", 2, 1]]),
                (1, [["append", 1, 2], ["append", 2, 2]]),
                (2, [["r", 1, [1, 2]], ["r", 2, [2, 1]]]),
            ],
        ),
    ],
)
def test_what_breaks_every_level(pattern: str, txns: list[tuple[int, list[list[object]]]]) -> None:
    report = checked(*txns)
    assert pattern in report.patterns
    assert report.levels == {"RC": False, "RA": False, "TCC": False}
