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
from whence.audit.conform.system import Failed, Settings, System, Unsupported
from whence.audit.trace import JsonlTrace
from whence.errors import AdapterError, TraceError, UsageError

PASS, FAIL, NOT_SUPPORTED = "pass", "fail", "not supported"


@dataclass
class Verdict:
    """The result of one scenario."""

    scenario: str
    verdict: str
    """`pass`, `fail` or `not supported`."""
    reasons: list[str] = field(default_factory=list)
    """The violations, or the missing claims."""
    notes: list[str] = field(default_factory=list)
    deliveries: dict[str, list[str]] = field(default_factory=dict)
    """What each incarnation of each node delivered, in order."""
    network: dict[str, int] = field(default_factory=dict)
    """Counts of the messages between the nodes."""
    seconds: float = 0.0


@dataclass
class Report:
    """The result of all scenarios."""

    command: list[str]
    features: list[str]
    """The system's claims."""
    verdicts: list[Verdict]
    error: str | None = None
    """Why the suite was aborted."""

    @property
    def ok(self) -> bool:
        """Whether nothing failed."""
        return self.error is None and not any(v.verdict == FAIL for v in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def chosen(only: Sequence[str]) -> list[Scenario]:
    """The scenarios with these names, or all."""
    for name in only:
        if name not in SCENARIOS:
            raise UsageError(f"no scenario {name!r}: there are {', '.join(SCENARIOS)}")
    return [s for s in SCENARIOS.values() if not only or s.name in only]


async def run_suite(
    command: Sequence[str],
    settings: Settings | None = None,
    only: Sequence[str] = (),
    trace: Path | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Report:
    """Run the scenarios one after the other, each with its own processes, which have ended when this returns.

    An error of the adapter is in `Report.error`; earlier scenarios are judged anyway.
    """
    if not command:
        raise UsageError("which system? Give the command that starts one node of it")
    scenarios = chosen(only)
    if trace is not None:
        _make_directory(trace)
    report = Report(list(command), [], [])
    claims: tuple[str, ...] | None = None
    for scenario in scenarios:
        progress(scenario.name)
        missing = [f for f in scenario.needs if claims is not None and f not in claims]
        if missing:
            report.verdicts.append(not_supported(scenario, missing))
            continue
        try:
            verdict, claims = await run_scenario(scenario, command, settings or Settings(), claims, trace)
        except AdapterError as error:
            report.error = f"{scenario.name}: {error}"
            break
        report.features = list(claims)
        report.verdicts.append(verdict)
    return report


def not_supported(scenario: Scenario, missing: Sequence[str]) -> Verdict:
    """The result if the system lacks claims."""
    return Verdict(scenario.name, NOT_SUPPORTED, [f"needs {', '.join(missing)}, which the system does not claim"])


async def run_scenario(
    scenario: Scenario,
    command: Sequence[str],
    settings: Settings,
    claims: tuple[str, ...] | None = None,
    trace: Path | None = None,
) -> tuple[Verdict, tuple[str, ...]]:
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
            return not_supported(scenario, error.missing), system.features
        finally:
            await system.close()
            if trace is not None:
                _write(system, scenario, trace, Path(directory))
    found = judge(system.history, system.features)
    reasons = [f"{f.rule}: {f.text}" for f in found] or reasons  # findings are more specific
    verdict = Verdict(
        scenario.name,
        FAIL if reasons else PASS,
        reasons,
        system.notes,
        system.history.deliveries(),
        asdict(system.network.counts),
        round(time.monotonic() - began, 3),
    )
    return verdict, system.features


def _make_directory(trace: Path) -> None:
    try:
        trace.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraceError(f"{trace}: cannot write the trace: {error.strerror or error}") from error


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
