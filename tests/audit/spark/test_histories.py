"""Client histories on Spark: many side by side and one spread, against one process."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.audit.history import cases
from tests.audit.history.reference import Reference
from tests.long import few
from whence.audit.history import History, check, read
from whence.audit.history.levels import TRANSACTIONAL
from whence.audit.history.model import NOTHING
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


@pytest.mark.parametrize("number", few([2, 1, 0, 3], 2))
def test_one_is_spread(spark: SparkSession, number: int) -> None:
    """By session, by key, by blocks of sessions; in one block and in one for each session."""
    rng = Random(40 + number)
    history = cases.generated(rng, 60, 5, 6, 4, repair=number < 3)
    if number == 1:  # one stale read
        history.value[[i for i in range(history.key.size) if not history.write[i]][-1]] = NOTHING
    before, histories.BLOCK_BYTES = histories.BLOCK_BYTES, 1 if number == 2 else histories.BLOCK_BYTES  # type: ignore[misc]
    try:
        checked = histories.check(table(spark, {"h": history}).drop("history"), TRANSACTIONAL, certificate=True)
        wanted = check(history, TRANSACTIONAL).levels
        assert verdicts(checked) == {"history": wanted}
    finally:
        histories.BLOCK_BYTES = before  # type: ignore[misc]
    order = [(row["session"], row["txn"], row["level"]) for row in checked.order.orderBy("position").collect()]
    assert bool(order) == wanted["RC"]
    if order:
        assert verify(history.rows(), [(s, t) for s, t, _ in order], order[0][2]) is None
    for row in checked.findings.where("finding is not null").collect():
        Reference(history).recheck(json.loads(row["finding"]))


@pytest.mark.parametrize("number", few([3, 0, 1, 2], 2))
def test_lists_are_spread(spark: SparkSession, number: int) -> None:
    """The same verdicts and counts of bad reads as in one place; strings are coded, too."""
    rng = Random(70 + number)
    while True:
        history = cases.generated_lists(rng, 60, 5, 6, 4)
        wanted = check(history, TRANSACTIONAL)
        if wanted.levels["RC"] is (number % 2 == 0) and history.key.size > 60:
            break
    names, values = ([str(each) for each in of] for of in (history.key_names, history.value_names))
    history = replace(history, key_names=names, value_names=values)
    df = spark.createDataFrame(arrow("h", history)).drop("history")
    checked = histories.check(df, TRANSACTIONAL, certificate=True)
    assert verdicts(checked) == {"history": wanted.levels}
    order = [(row["session"], row["txn"], row["level"]) for row in checked.order.orderBy("position").collect()]
    assert bool(order) == wanted.levels["RC"]
    if order:
        assert verify(history.rows(), [(s, t) for s, t, _ in order], order[0][2]) is None
    told = {row["pattern"]: row for row in checked.findings.collect()}
    for pattern in ("ThinAirRead", "IntermediateRead", "IncompatibleOrder", "DuplicateElement", "NonRepeatableRead"):
        assert (told[pattern]["count"] if pattern in told else 0) == wanted.patterns.get(pattern, 0)
    for row in told.values():
        if row["finding"] is not None:
            Reference(history).recheck(json.loads(row["finding"]))


def test_single_operations_are_spread(spark: SparkSession) -> None:
    history = cases.history("w(1,1,0,0) r(1,1,1,1) w(2,1,1,2) r(2,1,2,3) r(1,0,2,4)")
    found = histories.check(table(spark, {"h": history}).drop("history"))
    assert verdicts(found) == {"history": check(history).levels} and "CCv" in verdicts(found)["history"]


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


def test_strings_are_coded(spark: SparkSession) -> None:
    made = [("a", 0, 0, "w", "x", "1"), ("a", 1, 0, "r", "x", None), ("b", 0, 0, "r", "y", "9")]
    df = spark.createDataFrame(made, "session string, txn long, op long, kind string, key string, value string")
    found = histories.check(df, TRANSACTIONAL)
    assert verdicts(found) == {"history": {"RC": False, "RA": False, "TCC": False}}
    told = {row["pattern"]: row for row in found.findings.collect()}
    assert set(told) == {"ThinAirRead", "FracturedReadCO"}
    assert "both write x, and" in told["ThinAirRead"]["story"] and "w(x)=1" in told["ThinAirRead"]["story"]


def test_a_value_written_twice_is_named(spark: SparkSession) -> None:
    df = table(spark, {"h": cases.history("w(1,1,0,0) w(1,1,1,1) r(1,1,2,2)")})
    for source in (df, df.drop("history")):
        assert "written twice" in histories.check(source, TRANSACTIONAL).verdicts.collect()[0]["notes"]


def test_bad_tables_are_named(spark: SparkSession) -> None:
    with pytest.raises(HistoryError, match="no column 'session'"):
        histories.check(spark.createDataFrame([(1,)], "x long"))
    df = table(spark, {"h": cases.history("w(1,1,0,0)")}).drop("history")
    with pytest.raises(HistoryError, match="CM takes quadratic memory"):
        histories.check(df, ["CM"])
    with pytest.raises(HistoryError, match="the kind is r, w or a, not 'x'"):
        histories.check(df.withColumn("kind", F.lit("x")))
    with pytest.raises(HistoryError, match="holds no operation"):
        histories.check(df.where("txn < 0"))
    several = table(spark, {"h": cases.history("w(1,1,0,0) w(2,1,0,0)")}).drop("history")
    with pytest.raises(HistoryError, match="CC is defined for single operations"):
        histories.check(several, ["CC"])
