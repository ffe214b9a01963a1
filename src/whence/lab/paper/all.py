"""`whence paper all`: every experiment, and the page of all claims.

Data that is there already (same experiment, seed and size) is not measured again, so the command can be interrupted and
continued, and pages can be made again from the data in seconds.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from whence.errors import ConfigError
from whence.lab.paper import EXPERIMENTS, LIVE, Experiment
from whence.lab.paper.claims.page import Measured, Results, encode, page, rounded, stored
from whence.lab.paper.frame import Context, Outcome, load, prepare, save


def everything(live: bool) -> list[Experiment]:
    """All experiments; on sockets only if asked, since they need an idle machine."""
    found = [Experiment(name) for name in EXPERIMENTS]
    return found + [Experiment(name, live=True) for name in LIVE] if live else found


def one(experiment: Experiment, context: Context, out: Path, again: bool = True) -> tuple[Outcome, list[Path]]:
    """Run an experiment, or take its data from `out` unless it is to run again. Returns the files written."""
    prepare(out)
    rows = None if again else load(out, experiment.title, context)
    outcome = experiment.outcome(experiment.measure(context) if rows is None else rows)
    return outcome, save(out, experiment.title, context, outcome)


def run(context: Context, out: Path, live: bool) -> tuple[Results, list[Path]]:
    """Everything, into a directory for each experiment; and the page with its results."""
    results = _known()
    files: list[Path] = []
    pages: list[Path] = []
    experiments = everything(live)
    tell = context.tell
    for i, experiment in enumerate(experiments):

        def told(share: float, what: str, at: int = i, name: str = experiment.title) -> None:
            if tell:
                tell((at + share) / len(experiments), f"{name}: {what}")

        here = msgspec.structs.replace(context, tell=told, live=experiment.title != experiment.name)
        folder = out / experiment.title.replace(" --", "-")
        outcome, _ = one(experiment, here, folder, again=False)
        add(results, experiment.title, context, outcome)
        files.append(folder)
        pages = _write(out, results)  # after each: they are current if the command is interrupted
    return results, files + pages


def _write(out: Path, results: Results) -> list[Path]:
    files = [out / "claims.md", out / "results.json"]
    try:
        for path, text in zip(files, (page(results).encode(), encode(results)), strict=True):
            path.write_bytes(text)
    except OSError as error:
        raise ConfigError(f"out: cannot write into {out}: {error.strerror}") from None
    return files


def _known() -> Results:
    """The stored results, to begin with."""
    try:
        return stored()
    except FileNotFoundError:
        return Results()


def add(results: Results, title: str, context: Context, outcome: Outcome) -> None:
    """Record what an experiment found. A quick run does not replace the figures of a full one."""
    known = results.experiments.get(title)
    if context.quick and known and not known.quick:
        return
    statistics = {key: rounded(found) for key, found in outcome.statistics.items()}
    results.experiments[title] = Measured(quick=context.quick, seed=context.seed, statistics=statistics)
