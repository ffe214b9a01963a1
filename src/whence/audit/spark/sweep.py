"""Sweeps: a grid of settings, many seeds of each, mapped over a runner on the executors of Spark.

    load_grid -> all_points -> run_missing -> gather

A grid is a TOML file (docs/pipeline.md). A runner is a function `dict -> dict`, named `module:function`: this room
knows no simulator. A point is one setting with one seed; its seed is a hash of the grid's name, the setting and the
seed's number, so it does not depend on how points are spread, nor on what else is in the grid.

A sweep is one job of Spark over the points that are not finished. What came of a point is at once a line in a file of
its task, `points/NAME.jsonl`, so a sweep that is killed goes on where it was. A point is run in a process of its own
beside the worker (`_beside`): one that dies is a row with an error, where Spark would give up the job.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import multiprocessing
import os
import signal
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from hashlib import blake2b
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from whence.audit.spark.findings import task_number
from whence.audit.spark.ingest import over
from whence.audit.spark.tables import alone, meanwhile
from whence.errors import ConfigError, TraceError, UsageError
from whence.files import replacing

RUNNERS: Final = {"sim": "whence.lab.sim.run:point", "scale": "whence.lab.scale.run:point"}
"""The runners that have a short name."""

SEED_BITS: Final = 52
"""Seeds are below 2**52: exact also where numbers are doubles, as in JSON."""

MAX_POINTS: Final = 1_000_000
LOOK_SECONDS: Final = 0.5
"""How often it is looked for what is finished, to tell of progress."""

Row = dict[str, Any]
"""A point: `point` (its id), `seed_number` (from 0), `seed`, `setting` (as JSON); and when it has been run: `result`
(figures as JSON) or `error`, and `seconds`, how long it took."""
_TYPES: Final[dict[str, Any]] = {"seed_number": pa.int32(), "seed": pa.int64(), "seconds": pa.float64()}
Runner = Callable[[dict[str, Any]], Mapping[str, Any]]
Progress = Callable[[int, int, int], None]
"""`(done, failed, all)`, points."""


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


# -- the grid


def load_grid(path: str | os.PathLike[str]) -> Grid:
    """Read a grid; ConfigError names the file and what is wrong with it."""
    try:
        return parse_grid(Path(path).read_text(encoding="utf-8"), Path(path).stem)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read grid {path}: {reason}") from None
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
    for key, values in grid.grid.items():
        if not values:
            raise ConfigError(f"grid.{key}: has no values")
        if key in grid.settings:
            raise ConfigError(f"{key}: is both in settings and in grid")
        if len({_json(value, f"grid.{key}") for value in values}) < len(values):
            raise ConfigError(f"grid.{key}: has the same value twice")
    size = grid.seeds * prod(map(len, grid.grid.values()))
    for wrong, why in (
        (grid.seeds < 1, "seeds: must be at least 1"),
        ("seed" in {**grid.settings, **grid.grid}, "seed: is derived, say how many by `seeds`"),
        (size > MAX_POINTS, f"grid: {size:,} points are more than {MAX_POINTS:,}"),
    ):
        if wrong:
            raise ConfigError(why)
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


def all_points(grid: Grid) -> list[Row]:
    """Every setting with every seed, in the order of the file."""
    found = []
    for values in itertools.product(*grid.grid.values()):
        setting = _json({**grid.settings, **dict(zip(grid.grid, values, strict=True))}, "settings")
        for number in range(grid.seeds):
            seed = int.from_bytes(_hash(grid.name, setting, number)) >> (64 - SEED_BITS)
            point = _hash(grid.name, grid.runner, setting, number).hex()
            found.append({"point": point, "seed_number": number, "seed": seed, "setting": setting})
    return found


def _hash(*parts: object) -> bytes:
    return blake2b(json.dumps(parts).encode(), digest_size=8).digest()


# -- in a task


def keep(points: Iterable[Row], runner: str, file: Path) -> None:
    """Run these points, and append what came of each to this file. A point that fails is a row with its error."""
    with file.open("ab", buffering=0) as lines:
        for point in points:
            lines.write(b"\n" + msgspec.json.encode({**point, **_beside(runner, point)}))


_processes: dict[str, ProcessPoolExecutor] = {}
"""Runner -> the process that runs its points. Spark uses a worker for task after task."""


def _beside(runner: str, point: Row) -> Row:
    """What came of this point, run in a process beside this worker; that it died is an error, too."""
    if runner not in _processes:
        forked = multiprocessing.get_context("fork")
        _processes[runner] = ProcessPoolExecutor(1, mp_context=forked, initializer=_die_with_parent)
    try:
        return _processes[runner].submit(_outcome, runner, point).result()
    except BrokenProcessPool:
        del _processes[runner]
        return {"result": None, "error": "the worker died", "seconds": 0.0}


def _die_with_parent() -> None:
    """End when the worker does, though a point is running (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _outcome(runner: str, point: Row) -> Row:
    begun = time.perf_counter()
    result = error = None
    try:
        found = find_runner(runner)({**json.loads(point["setting"]), "seed": point["seed"]})
        if not isinstance(found, Mapping):
            raise TypeError(f"the runner gave a {type(found).__name__}, not a dict")
        result = msgspec.json.encode(dict(found), enc_hook=lambda value: value.tolist()).decode()  # NumPy's numbers
    except Exception as reason:
        error = f"{type(reason).__name__}: {reason}"
    return {"result": result, "error": error, "seconds": time.perf_counter() - begun}


# -- the whole job


def sweep(spark: SparkSession, grid: Grid, out: str | os.PathLike[str], progress: Progress | None = None) -> DataFrame:
    """Run what is not yet finished in `out`, then give the table of results (`results`)."""
    run_missing(spark, grid, out, progress)
    return spark.createDataFrame(gather(grid, out))


def missing(grid: Grid, out: str | os.PathLike[str]) -> list[Row]:
    """What is not yet finished in `out`. Points that failed are to be tried again."""
    rows = finished(Path(out))
    return [p for p in all_points(grid) if p["point"] not in rows or rows[p["point"]]["error"] is not None]


def run_missing(spark: SparkSession, grid: Grid, out: str | os.PathLike[str], progress: Progress | None = None) -> None:
    """Run what is not yet finished in `out`, and keep it there. May be killed at any time."""
    place = Path(out).absolute()
    try:
        with alone(place):
            (place / "points").mkdir(exist_ok=True)
            todo, before, total = missing(grid, place), _files(place), len(all_points(grid))

            def look() -> None:
                rows = _rows_in(_files(place) - before)
                if progress is not None:
                    progress(total - len(todo) + len(rows), sum(row["error"] is not None for row in rows), total)

            look()
            if todo:
                with meanwhile(look, LOOK_SECONDS):
                    _run(spark, grid.runner, todo, place / "points")
                look()
    except (TraceError, UsageError):
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0][:300]
        raise TraceError(f"Spark has failed ({reason}); what is finished is kept, run the sweep again") from error


def _run(spark: SparkSession, runner: str, todo: Sequence[Row], place: Path) -> None:
    begun = time.time_ns()

    def task(point: Row) -> Iterator[pa.RecordBatch]:
        keep([point], runner, place / f"{begun}-{task_number():05d}.jsonl")
        return iter(())

    over(spark, todo, task, "nothing long").collect()


def gather(grid: Grid, out: str | os.PathLike[str]) -> pa.Table:
    """The results of all points of the grid, which are finished, as one table (`results`), also written into `out`:
    `results/results.parquet`."""
    place = Path(out)
    with alone(place):
        rows, points = finished(place), [point["point"] for point in all_points(grid)]
        if lacking := sum(point not in rows for point in points):
            raise UsageError(f"{place}: {lacking} points of {grid.name} have not been run; run the sweep again")
        table = results([rows[point] for point in points])
        (place / "results").mkdir(exist_ok=True)
        with replacing(place / "results" / "results.parquet", sync=True) as file:
            pq.write_table(table, file, compression="zstd")
    return table


def finished(out: Path) -> dict[str, Row]:
    """Point -> what came of it the last time it was run here."""
    return {row["point"]: row for row in _rows_in(_files(out))}


def _files(out: Path) -> set[Path]:
    return set((out / "points").glob("*.jsonl"))


def _rows_in(files: Iterable[Path]) -> list[Row]:
    rows: list[Row] = []
    for file in sorted(files):  # by time
        for line in file.read_bytes().splitlines():
            with suppress(msgspec.DecodeError):  # half a line, of a task that was killed: its point is run again
                rows.append(msgspec.json.decode(line, type=Row))
    return rows


def results(rows: Sequence[Row]) -> pa.Table:
    """One row per point: `point`, `seed_number`, `seed`, `setting` (JSON), `error`, `seconds`, then a column per
    setting, and one per figure of the result. Dots in names become `_`; a name that is taken gets `result_` before it;
    a figure that only repeats a setting or the seed is left out."""
    settings = [json.loads(row["setting"]) for row in rows]
    figures = [json.loads(row["result"] or "{}") for row in rows]
    made: dict[str, pa.Array[Any]] = {
        name: pa.array([row[name] for row in rows], _TYPES.get(name, pa.string()))
        for name in ("point", "seed_number", "seed", "setting", "error", "seconds")
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
