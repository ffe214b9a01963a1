"""One point of `whence sweep`: a scenario with changed settings, run once with one seed.

A setting's name is its place in the scenario file: `network.loss`, `cluster.order` (of every cluster), `duration`.
`scenario` names the file, or one that comes with whence; `seed` is the point's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whence.lab.sim.run import Simulated, run
from whence.lab.sim.scenario import load

COUNTS = ("published", "delivered", "lost", "late", "over_gap", "inversions", "given_up", "asked", "recovered")
"""Counters summed over members, by order and in total."""


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """Run one point: settings (with `scenario` and `seed`) in, figures out. Raises ConfigError for a bad setting."""
    given = dict(setting)
    seed, name = given.pop("seed", None), str(given.pop("scenario", "demo"))
    return figures(run(load(name, settings=given), None if seed is None else int(seed)))


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
