"""Runs experiments: measures, judges, saves. `whence paper all` runs all of them, and makes the page of all claims.

`all` does not measure again what is there already (same experiment, seed and size), so the command can be interrupted
and continued, and pages can be made again from the data in seconds.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from whence.errors import ConfigError
from whence.lab.paper import EXPERIMENTS, LIVE, Experiment
from whence.lab.paper.claims import JudgedClaim, judged
from whence.lab.paper.claims.page import Results, StoredResult, encode, page, rounded, stored
from whence.lab.paper.frame import Made, Row, RunOptions, StudyOutcome
from whence.lab.stats import Estimate


class Recorded(msgspec.Struct, kw_only=True):
    """claims.json of one experiment."""

    experiment: str
    quick: bool
    seed: int
    note: str
    made: Made = Made()
    statistics: dict[str, list[Estimate]]
    claims: list[JudgedClaim]


def one(experiment: Experiment, options: RunOptions, out: Path, again: bool = True) -> tuple[StudyOutcome, list[Path]]:
    """Run an experiment, or take its data from `out` unless it is to run again. Returns the files written."""
    _prepare(out)
    found = None if again else load(out, experiment.title, options)
    rows, made = found or (experiment.study.measure(options), Made.here())
    outcome = experiment.study.outcome(rows)
    outcome.made = made
    return outcome, save(out, experiment.title, options, outcome)


def run(options: RunOptions, out: Path, live: bool) -> tuple[Results, list[Path]]:
    """Everything, into a directory for each experiment; and the page with its results."""
    results = stored()
    files: list[Path] = []
    pages: list[Path] = []
    experiments = [Experiment(name) for name in EXPERIMENTS]
    if live:  # only if asked: on sockets they need an idle machine
        experiments += [Experiment(name, live=True) for name in LIVE]
    tell = options.tell
    for i, experiment in enumerate(experiments):

        def told(share: float, what: str, at: int = i, name: str = experiment.title) -> None:
            if tell:
                tell((at + share) / len(experiments), f"{name}: {what}")

        folder = out / experiment.title.replace(" --", "-")
        outcome, _ = one(experiment, msgspec.structs.replace(options, tell=told), folder, again=False)
        _add(results, experiment.title, options, outcome)
        files.append(folder)
        pages = _write(out, results)  # after each: they are current if the command is interrupted
    return results, files + pages


def _write(out: Path, results: Results) -> list[Path]:
    files = [out / "claims.md", out / "results.json"]
    with _saving(out):
        files[0].write_text(page(results), encoding="utf-8")
        files[1].write_bytes(encode(results))
    return files


@contextmanager
def _saving(out: Path) -> Iterator[None]:
    """Say where nothing can be written."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"out: cannot write into {out}: {error.strerror}") from None


def _add(results: Results, title: str, options: RunOptions, outcome: StudyOutcome) -> None:
    """Record what an experiment found. A quick run does not replace the figures of a full one."""
    known = results.experiments.get(title)
    if options.quick and known and not known.quick:
        return
    statistics = {key: rounded(found) for key, found in outcome.statistics.items()}
    results.experiments[title] = StoredResult(
        quick=options.quick, seed=options.seed, made=outcome.made, statistics=statistics
    )


# -- files


def _prepare(out: Path) -> None:
    """Make the directory, before hours are spent on what cannot be saved there."""
    with _saving(out):
        out.mkdir(parents=True, exist_ok=True)
    if not os.access(out, os.W_OK | os.X_OK):
        raise ConfigError(f"out: cannot write into {out}: permission denied; name another directory with --out")


def save(out: Path, name: str, options: RunOptions, outcome: StudyOutcome) -> list[Path]:
    """Write the data (CSV and Parquet), the plot (PNG and SVG) and claims.json. Returns the paths."""
    stem = _stem(name)
    found = Recorded(
        experiment=name,
        quick=options.quick,
        seed=options.seed,
        note=outcome.note,
        made=outcome.made,
        statistics=outcome.statistics,
        claims=judged(name, outcome.statistics),
    )
    _prepare(out)
    with _saving(out):
        files = [out / "claims.json"]
        files[0].write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
        columns = list(dict.fromkeys(key for row in outcome.rows for key in row))
        files += [out / f"{stem}.csv", out / f"{stem}.parquet"]
        with files[1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(
                {k: json.dumps(v) if isinstance(v, list | tuple) else v for k, v in r.items()} for r in outcome.rows
            )
        table = pa.table({c: [row.get(c) for row in outcome.rows] for c in columns})
        pq.write_table(table, files[2])
        if outcome.figure is not None:
            files += [out / f"{stem}.png", out / f"{stem}.svg"]
            _draw(outcome.figure, *files[-2:])
    return files


def load(out: Path, name: str, options: RunOptions) -> tuple[list[Row], Made] | None:
    """The rows that an earlier run with the same settings saved here, or None."""
    try:
        found = msgspec.json.decode((out / "claims.json").read_bytes(), type=Recorded)
        table = pq.read_table(out / f"{_stem(name)}.parquet")
    except (OSError, msgspec.DecodeError, pa.ArrowInvalid):
        return None
    if (found.experiment, found.quick, found.seed) != (name, options.quick, options.seed):
        return None
    # Parquet gives every row all columns; a column that a row did not have is null.
    return [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()], found.made


def _stem(title: str) -> str:
    return title.partition(" ")[0].rpartition("/")[2]


def _draw(figure: Any, png: Path, svg: Path) -> None:
    """Equal rows give equal bytes (no date); text in SVG stays text."""
    import matplotlib as mpl

    figure.savefig(png, dpi=150)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "whence"}):
        figure.savefig(svg, metadata={"Date": None})
