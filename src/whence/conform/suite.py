"""All scenarios against one system, and what came out."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whence.conform.judge import judge
from whence.conform.scenarios import SCENARIOS, Scenario
from whence.conform.system import Failed, Settings, System, Unsupported
from whence.errors import AdapterError, TraceError, UsageError
from whence.trace import JsonlTrace

PASS, FAIL, NOT_SUPPORTED = "pass", "fail", "not supported"


@dataclass
class Verdict:
    """What came out of one scenario."""

    scenario: str
    verdict: str
    """`pass`, `fail` or `not supported`."""
    reasons: list[str] = field(default_factory=list)
    """Broken rules, each with who delivered what before what; or the features that are not claimed."""
    notes: list[str] = field(default_factory=list)
    deliveries: dict[str, list[str]] = field(default_factory=dict)
    """What each life of each node delivered, in order."""
    network: dict[str, int] = field(default_factory=dict)
    """What became of the messages between the nodes."""
    seconds: float = 0.0


@dataclass
class Report:
    """What came out of all."""

    command: list[str]
    features: list[str]
    """What the system claims."""
    verdicts: list[Verdict]
    error: str | None = None
    """Why the suite could not be finished."""

    @property
    def ok(self) -> bool:
        """Nothing failed."""
        return self.error is None and not any(v.verdict == FAIL for v in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def chosen(only: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names; all, if none is named."""
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
    """Run the scenarios one after the other, each with processes of its own; none is left when this returns.

    What the adapter does wrong is in `Report.error`; the scenarios before it are judged all the same.
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
    """The system does not claim what the scenario is about."""
    return Verdict(scenario.name, NOT_SUPPORTED, [f"needs {', '.join(missing)}, which the system does not claim"])


async def run_scenario(
    scenario: Scenario,
    command: Sequence[str],
    settings: Settings,
    claims: tuple[str, ...] | None = None,
    trace: Path | None = None,
) -> tuple[Verdict, tuple[str, ...]]:
    """One scenario with processes of its own, and what the system claims. Raises AdapterError."""
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
    reasons = [f"{f.rule}: {f.text}" for f in found] or reasons  # what is found says more
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
    """The history as `SCENARIO.jsonl`, and what the nodes wrote to standard error."""
    path = trace / f"{scenario.name}.jsonl"
    try:
        path.unlink(missing_ok=True)  # of an earlier run: a JSON trace is appended to
        with JsonlTrace(path) as writer:
            writer.append_many(system.history.rows(f"conform-{scenario.name}", system.order()))
        for errors in sorted(directory.glob("*.err")):
            shutil.copy(errors, trace / f"{scenario.name}.{errors.name}")
    except OSError as error:
        raise TraceError(f"{path}: cannot write the trace: {error.strerror or error}") from error
