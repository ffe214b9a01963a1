"""One point of `whence sweep`: a scenario with changed settings, run once with one seed.

A setting's name is its place in the scenario file: `network.loss`, `cluster.order` (of every cluster), `duration`.
`scenario` names the file, or one that comes with whence; `seed` is the point's.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from whence.errors import ConfigError
from whence.lab.sim.run import Simulated, run
from whence.lab.sim.scenario import Loaded, parse
from whence.lab.sim.settings import to_toml

COUNTS = ("published", "delivered", "lost", "late", "over_gap", "inversions", "given_up", "asked", "recovered")
"""Counters summed over members, by order and in total."""


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Run one point: settings (with `scenario` and `seed`) in, figures out. Raises ConfigError for a bad setting."""
    given = dict(setting)
    seed, name = given.pop("seed", None), str(given.pop("scenario", "demo"))
    return figures(run(changed(name, given), None if seed is None else int(seed)))


def changed(name: str, settings: Mapping[str, Any]) -> Loaded:
    """The scenario with these settings instead of its own."""
    table = copy.deepcopy(_table(name))
    for key, value in settings.items():
        _put(table, key.split("."), value)
    return parse(to_toml(table), name)


def _table(name: str) -> dict[str, Any]:
    try:
        if name.endswith(".toml"):
            text = Path(name).read_text(encoding="utf-8")
        else:  # a resource, because on Spark workers this package is a zip file
            text = (files("whence.lab") / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")
        return tomllib.loads(text)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"scenario {name!r}: cannot read: {reason}") from None


def _put(table: dict[str, Any], path: list[str], value: object) -> None:
    """Set the value at the path; a list of tables means each of them."""
    key, rest = path[0], path[1:]
    if not rest:
        table[key] = value
        return
    inner = table.get(key)
    if isinstance(inner, list) and all(isinstance(item, dict) for item in inner):
        for item in inner:
            _put(item, rest, value)
        return
    if not isinstance(inner, dict):
        inner = table[key] = {}
    _put(inner, rest, value)


def figures(outcome: Simulated) -> dict[str, Any]:
    """A flat result: sums over all, and per cluster and order if there are several."""
    report = outcome.report
    found: dict[str, Any] = {
        "violation": report.violation,
        "virtual_s": report.virtual_s,
        "steps": report.steps,
        **{count: sum(getattr(line, count) for line in report.lines) for count in COUNTS},
    }
    clusters = {line.cluster for line in report.lines}
    for line in report.lines:
        several = len(report.lines) > 1
        prefix = f"{line.cluster}." * (len(clusters) > 1) + f"{line.order}." * several
        found |= {f"{prefix}{count}": getattr(line, count) for count in COUNTS} if several else {}
        found |= {f"{prefix}latency_{quantile}_ms": ms for quantile, ms in line.latency_ms.items()}
    return found
