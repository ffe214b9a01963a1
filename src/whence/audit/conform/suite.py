"""Runs all scenarios against one system."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whence.audit.conform.judge import judge
from whence.audit.conform.scenarios import SCENARIOS, Scenario
from whence.audit.conform.system import ConformSettings, Failed, System, Unsupported
from whence.audit.trace import JsonlTrace
from whence.errors import AdapterError, TraceError, UsageError
from whence.files import why

PASS, FAIL, NOT_SUPPORTED = "pass", "fail", "not supported"


@dataclass
class ScenarioResult:
    """The result of one scenario."""

    scenario: str
    verdict: str
    """`pass`, `fail` or `not supported`."""
    reasons: list[str] = field(default_factory=list)
    """The violations, or the missing claims."""
    notes: list[str] = field(default_factory=list)
    deliveries: dict[str, list[str]] = field(default_factory=dict)
    """What each life of each node delivered, in order."""
    seconds: float = 0.0


@dataclass
class ConformReport:
    """The result of all scenarios."""

    command: list[str]
    features: list[str] = field(default_factory=list)
    """The system's claims."""
    verdicts: list[ScenarioResult] = field(default_factory=list)
    error: str | None = None
    """Why the suite was aborted."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return self.error is None and not any(v.verdict == FAIL for v in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


async def run_suite(
    command: Sequence[str],
    settings: ConformSettings,
    only: Sequence[str] = (),
    trace: Path | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> ConformReport:
    """Run the scenarios (default: all) one after the other, each with its own processes, which have ended when this
    returns. An error of the adapter is in `ConformReport.error`; earlier scenarios are judged anyway."""
    if unknown := [name for name in only if name not in SCENARIOS]:
        raise UsageError(f"no scenario {unknown[0]!r}: there are {', '.join(SCENARIOS)}")
    try:
        if trace is not None:
            trace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(f"{trace}: cannot write the trace: {why(error)}") from error
    report = ConformReport(list(command))
    claims: tuple[str, ...] | None = None
    for scenario in SCENARIOS.values():
        if only and scenario.name not in only:
            continue
        progress(scenario.name)
        try:
            verdict, claims = await _run(scenario, command, settings, claims, trace)
        except AdapterError as error:
            report.error = f"{scenario.name}: {error}"
            break
        report.features = list(claims or ())
        report.verdicts.append(verdict)
    return report


async def _run(
    scenario: Scenario,
    command: Sequence[str],
    settings: ConformSettings,
    claims: tuple[str, ...] | None,
    trace: Path | None,
) -> tuple[ScenarioResult, tuple[str, ...] | None]:
    """Run one scenario; returns its result and the system's claims. Raises AdapterError."""
    began = time.monotonic()
    reasons: list[str] = []
    with tempfile.TemporaryDirectory(prefix="whence-conform-") as directory:
        system = System(command, settings, Path(directory), scenario.needs, claims)
        try:
            await scenario.run(system)
        except Failed as error:
            reasons.append(str(error))
        except Unsupported as error:
            return ScenarioResult(scenario.name, NOT_SUPPORTED, [str(error)]), system.features
        finally:
            await system.close()
            if trace is not None:
                _write(system, scenario, trace, Path(directory))
    if settings.own_network and not system.network.handed:
        why = "nothing came through the kit's proxies: reach the other nodes by the addresses in `peers`"
        return ScenarioResult(scenario.name, NOT_SUPPORTED, [why]), system.features
    found = judge(system.history, system.features or ())
    reasons = [f"{f.rule}: {f.text}" for f in found] or reasons  # findings are more specific
    took = round(time.monotonic() - began, 3)
    verdict, delivered = FAIL if reasons else PASS, system.history.deliveries()
    return ScenarioResult(scenario.name, verdict, reasons, system.notes, delivered, took), system.features


def _write(system: System, scenario: Scenario, trace: Path, directory: Path) -> None:
    """Write the history as `SCENARIO.jsonl`, and the nodes' standard error."""
    path = trace / f"{scenario.name}.jsonl"
    try:
        path.unlink(missing_ok=True)  # of an earlier run: JSON traces are appended to
        with JsonlTrace(path) as writer:
            writer.append_many(system.history.rows(f"conform-{scenario.name}", system.order()))
        for errors in sorted(directory.glob("*.err")):
            shutil.copy(errors, trace / f"{scenario.name}.{errors.name}")
    except OSError as error:
        raise TraceError(f"{path}: cannot write the trace: {error.strerror or error}") from error
