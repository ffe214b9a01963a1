"""Client histories as tables, on Spark many side by side."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.audit.history import cases
from tests.audit.history.reference import Reference
from tests.long import few
from whence.audit.history import History, check, read
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.verify import verify
from whence.audit.spark import histories
from whence.errors import HistoryError

SCHEMA = "history string, session string, txn long, op long, kind string, key long, value long"


def table(found: dict[str, History]) -> list[tuple[Any, ...]]:
    made: list[tuple[Any, ...]] = []
    for name, history in found.items():
        for op, (session, txn, kind, key, value) in enumerate(history.rows()):
            made.append((name, session, txn, op, kind, key, value))
    Random(1).shuffle(made)
    return made


def levels_in(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, bool]]:
    told: dict[str, dict[str, bool]] = {}
    for row in rows:
        told.setdefault(row["history"], {})[row["level"]] = row["holds"]
    return told


def alone(name: str, made: pa.Table, levels: Any, certificate: bool = False) -> dict[str, list[dict[str, Any]]]:
    """What a task finds in one history, by part."""
    rows = histories.judged(name, made, levels, certificate).to_pylist()
    return {part: [row for row in rows if row["part"] == part] for part in histories.FIELDS}


def test_with_spark(spark: SparkSession) -> None:
    """Many side by side, each with what a task finds alone; without a column `history` all rows are of one."""
    rng = Random(30)
    found = {f"h{n}": cases.generated(rng, 6, 3, 3, 3) for n in range(12)}
    found = {name: history for name, history in found.items() if history.key.size}
    df = spark.createDataFrame(table(found), SCHEMA)
    checked = histories.check(df, TRANSACTIONAL, certificate=True)
    told = [row.asDict() for row in checked.verdicts.collect()]
    assert levels_in(told) == {name: check(history, TRANSACTIONAL).levels for name, history in found.items()}
    for part, rows in (("finding", checked.findings), ("order", checked.order)):
        mine = [
            row
            for name, history in found.items()
            for row in alone(name, arrow(name, history), TRANSACTIONAL, True)[part]
        ]
        assert rows.count() == len(mine) > 0
    one = histories.check(df.where("history = 'h0'").drop("history"), TRANSACTIONAL)
    assert {row["history"] for row in one.verdicts.collect()} == {"history"}
    with pytest.raises(HistoryError, match="no column 'session'"):
        histories.check(df.drop("session"))


def test_certificates_and_findings_hold() -> None:
    rng = Random(30)
    for n in range(60):
        history = cases.generated(rng, 6, 3, 3, 3)
        if not history.key.size:
            continue
        names = ("session", "txn", "kind", "key", "value")
        made = pa.table(dict(zip(names, map(list, zip(*history.rows(), strict=True)), strict=True)))
        found = alone(f"h{n}", made, TRANSACTIONAL, True)
        order = [(row["session"], row["txn"]) for row in sorted(found["order"], key=lambda row: row["position"])]
        assert not order or verify(history.rows(), order, found["order"][0]["level"]) is None
        for row in found["finding"]:
            told = json.loads(row["finding"] or "null")
            if told and (told["edges"] or told["read"] is not None):
                none = np.empty(0, np.int32), np.empty(0, np.int64)  # the table has nothing of aborted transactions
                Reference(replace(history, aborted=none)).recheck(told)


LARGE = 2_000
"""Operations of recorded histories that only the long test takes."""


@pytest.mark.skipif(cases.DATA is None, reason=cases.WHY_SKIPPED)
@pytest.mark.parametrize("large", few([False, True], 1))
def test_recorded_histories(large: bool) -> None:
    """As tables: what is expected of each, at every level."""
    assert cases.DATA is not None
    expected = {each["file"]: each for size in (False, True) for each in cases.recorded(size)}
    told = 0
    for name, each in expected.items():
        if (each["ops"] > LARGE) is not large:
            continue
        path = cases.DATA / name
        history = read(path / "history.bincode" if (path / "history.bincode").exists() else path)
        levels: Any = ["RC", "RA", "TCC", "CC", "CM", "CCv"] if "CM" in each["expected"] else TRANSACTIONAL
        found = levels_in(alone(name, arrow(name, history), levels)["verdict"])[name]
        assert found == {level: good == "ok" for level, good in each["expected"].items()}, name
        told += 1
    assert told > (20 if large else 90)


def arrow(name: str, history: History) -> pa.Table:
    """As a table of strings: keys and values of recorded histories are of any kind."""
    made = []
    for op, (session, txn, kind, key, value) in enumerate(history.rows()):
        told = (
            [str(each) for each in (value if isinstance(value, list) else [value])]
            if history.lists is not None
            else value
        )
        made.append(
            (name, session, txn, op, kind, str(key), told if history.lists is not None or told is None else str(told))
        )
    names = ("history", "session", "txn", "op", "kind", "key", "value")
    columns = dict(zip(names, map(list, zip(*made, strict=True)), strict=True))
    kind_of_value = pa.list_(pa.string()) if history.lists is not None else pa.string()
    return pa.table(columns | {"value": pa.array(columns["value"], kind_of_value)})


def test_what_is_told() -> None:
    made = [("a", 0, "w", "x", "1"), ("a", 1, "r", "x", None), ("b", 0, "r", "y", "9")]
    columns = dict(zip(("session", "txn", "kind", "key", "value"), map(list, zip(*made, strict=True)), strict=True))
    found = alone("h", pa.table(columns), TRANSACTIONAL)
    assert levels_in(found["verdict"]) == {"h": {"RC": False, "RA": False, "TCC": False}}
    told = {row["pattern"]: row for row in found["finding"]}
    assert set(told) == {"ThinAirRead", "FracturedReadCO"}
    assert "session b: r(y)=9" in told["ThinAirRead"]["story"]
    twice = arrow("h", cases.history("w(1,1,0,0) w(1,1,1,1) r(1,1,2,2)"))
    assert "written twice" in alone("h", twice, TRANSACTIONAL)["verdict"][0]["notes"]
