"""Sweeps: a grid of settings, many seeds of each, mapped over a runner on the executors of Spark.

    load_grid -> points -> run_points -> results

A grid is a TOML file (docs/pipeline.md). A runner is a function `dict -> dict`, named `module:function`: this room
knows no simulator. A point is one setting with one seed; its seed is a hash of the grid's name, the setting and the
seed's number, so it does not depend on how points are spread, nor on what else is in the grid.

A sweep is one job of Spark: the points that are not finished, in `TASKS` tasks, results written by Spark. A task's file
appears when the task is done (the second algorithm of Hadoop's committer), so a sweep that is killed goes on where it
was. A point is run in a process of its own beside the worker (`_beside`): one that dies is a row with an error, where
Spark would give up the job.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import multiprocessing
import os
import shutil
import signal
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from whence.audit.judge.batch.tables import arrow, columns
from whence.audit.spark.place import replace_bytes
from whence.audit.spark.tables import alone, meanwhile
from whence.errors import ConfigError, TraceError, UsageError

RUNNERS: Final = {"sim": "whence.lab.sim.run:point", "scale": "whence.lab.scale.run:point"}
"""The runners that have a short name."""

SEED_BITS: Final = 52
"""Seeds are below 2**52: exact also where numbers are doubles, as in JSON."""

MAX_POINTS: Final = 1_000_000
TASKS: Final = 200
"""Tasks of a sweep, at most. A kill costs each core its task, so a two-hundredth of the sweep; a task costs 0.1 s."""
LOOK_SECONDS: Final = 0.5
"""How often it is looked for what is finished, to tell of progress."""

POINTS: Final = "point string, seed_number int, seed bigint, setting string"
RESULTS: Final = f"{POINTS}, result string, error string, seconds double"
"""A point (its id, the number of its seed from 0, the seed, the setting as JSON), and what came of it: figures as JSON,
or the error; and how long it took."""

_SCHEMA: Final = arrow(
    columns("point text, seed_number int32, seed int64, setting text, result text, error text, seconds double")
)

Runner = Callable[[dict[str, Any]], Mapping[str, Any]]


class Grid(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is to be run."""

    name: str
    """Seeds are derived from it: another name, other seeds. Default: the file's name without its ending."""
    runner: str
    """`sim`, `scale`, or `module:function`."""
    seeds: int = 1
    """Seeds of each setting."""
    settings: dict[str, Any] = {}
    """What is the same at every point."""
    grid: dict[str, list[Any]] = {}
    """Setting -> its values; every combination is run."""


class Point(msgspec.Struct, frozen=True):
    """One run."""

    point: str
    seed_number: int
    seed: int
    setting: str


# -- the grid


def load_grid(path: str | os.PathLike[str]) -> Grid:
    """Read a grid; ConfigError names the file and what is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read grid {path}: {reason}") from None
    try:
        return parse_grid(text, Path(path).stem)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_grid(text: str, name: str) -> Grid:
    """The grid that this TOML text describes."""
    try:
        table = tomllib.loads(text)
        flat = {key: _flat(table.get(key, {}), key) for key in ("settings", "grid")}
        grid = msgspec.convert({"name": name, **table, **flat}, Grid)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not TOML: {error}") from None
    except msgspec.ValidationError as error:
        text = str(error).replace("$.", "")
        raise ConfigError(text[0].lower() + text[1:]) from None
    if grid.seeds < 1:
        raise ConfigError("seeds: must be at least 1")
    for key, values in grid.grid.items():
        if not values:
            raise ConfigError(f"grid.{key}: has no values")
        if key in grid.settings:
            raise ConfigError(f"{key}: is both in settings and in grid")
        if len({_json(value, f"grid.{key}") for value in values}) < len(values):
            raise ConfigError(f"grid.{key}: has the same value twice")
    if "seed" in {**grid.settings, **grid.grid}:
        raise ConfigError("seed: is derived, say how many by `seeds`")
    size = grid.seeds
    for values in grid.grid.values():
        size *= len(values)
    if size > MAX_POINTS:
        raise ConfigError(f"grid: {size:,} points are more than {MAX_POINTS:,}")
    find_runner(grid.runner)
    return grid


def _flat(table: object, where: str) -> dict[str, Any]:
    """Tables in tables as dotted names."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: write it as a table, [{where}]")
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= {f"{key}.{inner}": item for inner, item in _flat(value, f"{where}.{key}").items()}
        else:
            _json(value, f"{where}.{key}")
            found[key] = value
    return found


def _json(value: object, where: str) -> str:
    """The one way to write a value down."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except (TypeError, ValueError):
        raise ConfigError(
            f"{where}: {value!r} is neither text, number, truth value nor a list or table of them"
        ) from None


def find_runner(name: str) -> Runner:
    """The function that a runner's name means."""
    module, colon, function = RUNNERS.get(name, name).partition(":")
    known = f"give one of {', '.join(RUNNERS)}, or module:function"
    if not (module and colon and function):
        raise ConfigError(f"runner: {name!r} is none; {known}")
    try:
        runner = getattr(import_module(module), function, None)
    except ImportError as error:
        raise ConfigError(f"runner: {name!r} cannot be imported: {error}") from None
    if not callable(runner):
        raise ConfigError(f"runner: {module} has no function {function}; {known}")
    found: Runner = runner
    return found


def all_points(grid: Grid) -> list[Point]:
    """Every setting with every seed, in the order of the file."""
    found = []
    for values in itertools.product(*grid.grid.values()):
        setting = _json({**grid.settings, **dict(zip(grid.grid, values, strict=True))}, "settings")
        for number in range(grid.seeds):
            seed = int.from_bytes(_hash(grid.name, setting, number)) >> (64 - SEED_BITS)
            found.append(Point(_hash(grid.name, grid.runner, setting, number).hex(), number, seed, setting))
    return found


def _hash(*parts: object) -> bytes:
    return blake2b(json.dumps(parts).encode(), digest_size=8).digest()


# -- DataFrame -> DataFrame


def points(spark: SparkSession, some: Sequence[Point]) -> DataFrame:
    """Points as a DataFrame: `POINTS`."""
    return spark.createDataFrame([(p.point, p.seed_number, p.seed, p.setting) for p in some], POINTS)


def run_points(points: DataFrame, runner: str) -> DataFrame:
    """Each point run, on whichever executor it is: `RESULTS`. A point that fails is a row with its error."""
    return points.select("point", "seed_number", "seed", "setting").mapInArrow(partial(_run, runner), RESULTS)


def _run(runner: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            yield pa.RecordBatch.from_pylist([{**row, **_beside(runner, row)}], _SCHEMA)


_processes: dict[str, ProcessPoolExecutor] = {}
"""Runner -> the process that runs its points. Spark uses a worker for task after task."""


def _beside(runner: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What came of this point, run in a process beside this worker; that it died is an error, too."""
    if runner not in _processes:
        forked = multiprocessing.get_context("fork")
        _processes[runner] = ProcessPoolExecutor(1, mp_context=forked, initializer=_die_with_parent)
    try:
        return _processes[runner].submit(_outcome, runner, row).result()
    except BrokenProcessPool:
        del _processes[runner]
        return {"result": None, "error": "the worker died", "seconds": 0.0}


def _die_with_parent() -> None:
    """End when the worker does, though a point is running (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _outcome(runner: str, row: Mapping[str, Any]) -> dict[str, Any]:
    begun = time.perf_counter()
    result = error = None
    try:
        found = find_runner(runner)({**json.loads(row["setting"]), "seed": row["seed"]})
        if not isinstance(found, Mapping):
            raise TypeError(f"the runner gave a {type(found).__name__}, not a dict")
        result = msgspec.json.encode(dict(found), enc_hook=_plain).decode()
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
    return {"result": result, "error": error, "seconds": time.perf_counter() - begun}


def _plain(value: object) -> object:
    """NumPy's numbers and arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} in the result")


# -- the whole job

Progress = Callable[[int, int, int], None]
"""`(done, failed, all)`, points."""


def sweep(spark: SparkSession, grid: Grid, out: str | os.PathLike[str], progress: Progress | None = None) -> DataFrame:
    """Run what is not yet finished in `out`, then give the table of results (`results`)."""
    run_missing(spark, grid, out, progress)
    return spark.createDataFrame(gather(grid, out))


def missing(grid: Grid, out: str | os.PathLike[str]) -> list[Point]:
    """What is not yet finished in `out`. Points that failed are to be tried again."""
    rows = finished(Path(out))
    return [p for p in all_points(grid) if p.point not in rows or rows[p.point]["error"] is not None]


def run_missing(spark: SparkSession, grid: Grid, out: str | os.PathLike[str], progress: Progress | None = None) -> None:
    """Run what is not yet finished in `out`, and keep it there. May be killed at any time."""
    place, tell = Path(out), progress or (lambda done, failed, total: None)
    try:
        with alone(place):
            for left in (place / "points").glob("*/_temporary"):  # of one that was killed
                shutil.rmtree(left, ignore_errors=True)
            todo, total = missing(grid, place), len(all_points(grid))
            tell(total - len(todo), 0, total)
            if not todo:
                return
            part, before = _new_part(place), total - len(todo)

            def look() -> None:
                with suppress(TraceError):  # on some shared disks a file appears before its end
                    tell(*_counted(part, before), total)

            with meanwhile(look, LOOK_SECONDS):
                _write(spark, grid.runner, todo, part)
            tell(*_counted(part, before), total)
    except (TraceError, UsageError):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0][:300]
        raise TraceError(f"Spark has failed ({reason}); what is finished is kept, run the sweep again") from error


def _new_part(out: Path) -> Path:
    """Where the results of this time go: later times have later names."""
    place = out / "points"
    place.mkdir(exist_ok=True)
    return place / f"{max((int(part.name) for part in place.glob('[0-9]*')), default=-1) + 1:07}"


def _write(spark: SparkSession, runner: str, todo: Sequence[Point], part: Path) -> None:
    tasks = min(len(todo), TASKS)
    rows = [(n * tasks // len(todo), p.point, p.seed_number, p.seed, p.setting) for n, p in enumerate(todo)]
    frame = spark.createDataFrame(rows, f"task int, {POINTS}").repartitionById(tasks, "task")
    as_they_come = run_points(frame, runner).write.option("mapreduce.fileoutputcommitter.algorithm.version", "2")
    as_they_come.parquet(part.absolute().as_uri())


def _counted(part: Path, before: int) -> tuple[int, int]:
    """Points that are done, and those of this time that failed."""
    rows = _rows_in(part)
    return before + len(rows), sum(row["error"] is not None for row in rows)


def gather(grid: Grid, out: str | os.PathLike[str]) -> pa.Table:
    """The results of all points of the grid, which are finished, as one table (`results`), also written into `out`:
    `results/results.parquet`."""
    place = Path(out)
    with alone(place):
        rows = finished(place)
        lacking = [p for p in all_points(grid) if p.point not in rows]
        if lacking:
            raise UsageError(f"{place}: {len(lacking)} points of {grid.name} have not been run; run the sweep again")
        table = results([rows[p.point] for p in all_points(grid)])
        (place / "results").mkdir(exist_ok=True)
        sink = BytesIO()
        pq.write_table(table, sink, compression="zstd")
        replace_bytes(str(place.absolute() / "results" / "results.parquet"), sink.getvalue())
    return table


Rows = list[dict[str, Any]]


def finished(out: Path) -> dict[str, dict[str, Any]]:
    """Point -> what came of it the last time it was run here."""
    parts = sorted((out / "points").glob("[0-9]*"))
    return {row["point"]: row for part in parts for row in _rows_in(part)}


def _rows_in(part: Path) -> Rows:
    rows: Rows = []
    for file in sorted(part.glob("part-*.parquet")):
        try:
            rows += pq.read_table(file, schema=_SCHEMA).to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise TraceError(f"{file}: damaged: {error}; delete it, and its points are run again") from None
    return rows


def results(rows: Rows) -> pa.Table:
    """One row per point: `point`, `seed_number`, `seed`, `setting` (JSON), `error`, `seconds`, then a column per
    setting, and one per figure of the result. Dots in names become `_`; a name that is taken gets `result_` before it;
    a figure that only repeats a setting or the seed is left out."""
    settings = [json.loads(row["setting"]) for row in rows]
    figures = [json.loads(row["result"] or "{}") for row in rows]
    made: dict[str, pa.Array[Any]] = {
        each.name: pa.array([row[each.name] for row in rows], each.type) for each in _SCHEMA if each.name != "result"
    }
    for key in dict.fromkeys(key for setting in settings for key in setting):
        made[_fresh(key, made)] = _column([setting.get(key) for setting in settings])
    given = [{**setting, "seed": row["seed"]} for setting, row in zip(settings, rows, strict=True)]
    for key in dict.fromkeys(key for found in figures for key in found):
        if not all(found.get(key) == known.get(key) for found, known in zip(figures, given, strict=True) if found):
            made[_fresh(key, made)] = _column([found.get(key) for found in figures])
    return pa.table(made)


def _fresh(key: str, taken: Mapping[str, object]) -> str:
    name = key.replace(".", "_")
    while name in taken:
        name = f"result_{name}"
    return name


def _column(values: list[Any]) -> pa.Array[Any]:
    """The type that all values have: truth values, integers, numbers; else text (JSON, if it is no text)."""
    if not any(isinstance(value, list | dict) for value in values):
        with suppress(pa.ArrowException, OverflowError):
            return pa.array(values) if any(value is not None for value in values) else pa.array(values, pa.string())
    texts = [v if v is None or isinstance(v, str) else json.dumps(v, sort_keys=True) for v in values]
    return pa.array(texts, pa.string())
