"""Client histories on Spark, many side by side, against one process."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.audit.history import cases
from tests.audit.history.reference import Reference
from tests.long import few
from whence.audit.history import History, check, read
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.verify import verify
from whence.audit.spark import histories
from whence.errors import HistoryError

SCHEMA = "history string, session string, txn long, op long, kind string, key long, value long"


def table(spark: SparkSession, found: dict[str, History]) -> DataFrame:
    made = []
    for name, history in found.items():
        for op, (session, txn, kind, key, value) in enumerate(history.rows()):
            made.append((name, session, txn, op, kind, key, value))
    Random(1).shuffle(made)
    return spark.createDataFrame(made, SCHEMA)


def verdicts(checked: histories.Checked) -> dict[str, dict[str, bool]]:
    told: dict[str, dict[str, bool]] = {}
    for row in checked.verdicts.collect():
        told.setdefault(row["history"], {})[row["level"]] = row["holds"]
    return told


def test_many_side_by_side(spark: SparkSession) -> None:
    rng = Random(30)
    found = {f"h{n}": cases.generated(rng, 6, 3, 3, 3) for n in range(60)}
    found = {name: history for name, history in found.items() if history.key.size}
    checked = histories.check(table(spark, found), TRANSACTIONAL, certificate=True)
    assert verdicts(checked) == {name: check(history, TRANSACTIONAL).levels for name, history in found.items()}
    orders: dict[str, list[Any]] = {}
    for row in checked.order.orderBy("position").collect():
        orders.setdefault(row["history"], [row["level"]]).append((row["session"], row["txn"]))
    assert orders
    for name, (level, *order) in orders.items():
        assert verify(found[name].rows(), order, level) is None
    for row in checked.findings.where("finding is not null").collect():
        told = json.loads(row["finding"])
        if told["edges"] or told["read"] is not None:
            none = np.empty(0, np.int32), np.empty(0, np.int64)  # the table has nothing of aborted transactions
            Reference(replace(found[row["history"]], aborted=none)).recheck(told)


LARGE = 2_000
"""Operations of recorded histories that only the long test takes."""


@pytest.mark.skipif(cases.DATA is None, reason=cases.WHY_SKIPPED)
@pytest.mark.parametrize("large", few([False, True], 1))
def test_recorded_histories(spark: SparkSession, large: bool) -> None:
    """Side by side: what is expected of each, at every level. Lists are a table of their own."""
    assert cases.DATA is not None
    expected = {each["file"]: each for size in (False, True) for each in cases.recorded(size)}
    tables: dict[tuple[bool, bool], list[pa.Table]] = {}
    for name, each in expected.items():
        if (each["ops"] > LARGE) is not large:
            continue
        path = cases.DATA / name
        history = read(path / "history.bincode" if (path / "history.bincode").exists() else path)
        shape = (history.lists is not None, "CM" in each["expected"])
        tables.setdefault(shape, []).append(arrow(name, history))
    assert sum(map(len, tables.values())) > (20 if large else 90)
    for (_, single), those in tables.items():
        levels: Any = ["RC", "RA", "TCC", "CC", "CM", "CCv"] if single else TRANSACTIONAL
        told = verdicts(histories.check(spark.createDataFrame(pa.concat_tables(those)), levels))
        assert len(told) == len(those)
        for name, found in told.items():
            assert found == {level: good == "ok" for level, good in expected[name]["expected"].items()}, name


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


def test_without_a_column_history_all_rows_are_of_one(spark: SparkSession) -> None:
    made = [("a", 0, 0, "w", "x", "1"), ("a", 1, 0, "r", "x", None), ("b", 0, 0, "r", "y", "9")]
    df = spark.createDataFrame(made, "session string, txn long, op long, kind string, key string, value string")
    found = histories.check(df, TRANSACTIONAL)
    assert verdicts(found) == {"history": {"RC": False, "RA": False, "TCC": False}}
    told = {row["pattern"]: row for row in found.findings.collect()}
    assert set(told) == {"ThinAirRead", "FracturedReadCO"}
    assert "session b: r(y)=9" in told["ThinAirRead"]["story"]


def test_a_value_written_twice_is_named(spark: SparkSession) -> None:
    df = table(spark, {"h": cases.history("w(1,1,0,0) w(1,1,1,1) r(1,1,2,2)")})
    assert "written twice" in histories.check(df, TRANSACTIONAL).verdicts.collect()[0]["notes"]


def test_bad_tables_are_named(spark: SparkSession) -> None:
    with pytest.raises(HistoryError, match="no column 'session'"):
        histories.check(spark.createDataFrame([(1,)], "x long"))
