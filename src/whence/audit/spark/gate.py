"""The gate: any DataFrame of steps, whoever made it, as rows for the judge.

Six columns are required (`NEEDED`), the others that the judge reads are optional. Types are what sources give:
integers of any width and decimals without a fraction for numbers; numbers, dates and text for names (a partition column
`run=7` is an integer to Spark). A wrong table is refused with one error that names all that is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType

from whence.audit.judge.batch.coding import READ
from whence.audit.spark.ingest import NEEDED, RAW
from whence.errors import UsageError

OPTIONAL: Final = tuple(name for name in READ if name not in NEEDED)
"""Columns that the judge reads if they are there. Without `order` a member counts as causal, without `reason`, `peer`
and `token` nobody is known to begin with the state of another, without `ticket` and `t_ns` nobody shares a ticket."""

PLACED: Final = ("file", "position", "bad", "raw")
"""For the quarantine: where a row comes from; and what is none, why not and its text (`whence.audit.read_traces`)."""

_KIND: Final = {field.name: "string" if pa.types.is_string(field.type) else "bigint" for field in RAW}
_BLANK: Final[dict[str, int | str]] = {"t_ns": 0, "file": "", "position": -1}
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_NAMES: Final = ("string", "date", "timestamp", "timestamp_ntz")


def rows(df: DataFrame) -> DataFrame:
    """The columns of `df` that the judge reads (`READ`), and `PLACED`; text as text, numbers as bigint. Raises
    UsageError that names all columns that are missing or of a wrong type. Reads no data."""
    there = {field.name: field.dataType for field in df.schema.fields}
    missing = [name for name in NEEDED if name not in there]
    wrong = [name for name in (*READ, *PLACED) if name in there and not _fits(there[name], name)]
    if missing or wrong:
        raise UsageError(_refusal(there, missing, wrong))
    return df.select(*(_column(name) for name in (*READ, *PLACED) if name in there))


def _column(name: str) -> Column:
    value = F.col(f"`{name}`").try_cast(_KIND[name])  # a number that does not fit is none
    return (F.coalesce(value, F.lit(_BLANK[name])) if name in _BLANK else value).alias(name)


def _fits(kind: DataType, name: str) -> bool:
    said = kind.simpleString()
    if said == "void":
        return name not in NEEDED or name == "event"
    whole = said in _INTEGERS or (isinstance(kind, DecimalType) and kind.scale == 0)
    return whole or (_KIND[name] == "string" and (said in _NAMES or said.startswith(("char", "varchar", "string "))))


def _refusal(there: dict[str, DataType], missing: Sequence[str], wrong: Sequence[str]) -> str:
    said = []
    if missing:
        said.append(f"no column {', '.join(missing)}")
    said += [f"{name} is {there[name].simpleString()}, not {_KIND[name]}" for name in wrong]
    names = ", ".join(there) or "none"
    return (
        f"not a table of steps: {'; '.join(said)}. It has the columns: {names}. Required are {', '.join(NEEDED)}; "
        f"optional {', '.join(OPTIONAL)}. Rename or cast: df.withColumnRenamed('node', 'member'), "
        "df.withColumn('lseq', col('lseq').cast('bigint'))"
    )
