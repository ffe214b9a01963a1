"""The kit against real processes: ours and the examples pass, and every mistake is found by the scenario for it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.audit.conform.broken import FOUND_BY, MISTAKES
from tests.long import few
from whence.audit.conform import FAIL, NOT_SUPPORTED, PASS, SCENARIOS, ConformReport, ConformSettings, run_suite
from whence.audit.judge import judge
from whence.audit.trace import read

ROOT = Path(__file__).parents[3]
PYTHON = sys.executable
EXAMPLE = [PYTHON, str(ROOT / "examples" / "conform_vector.py")]
OURS = [PYTHON, "-m", "whence", "conform", "--adapter"]

PATIENT = ConformSettings(timeout_s=90, hold_s=3, start_s=120)
"""For systems that pass. How busy the machine is must not matter."""
IMPATIENT = ConformSettings(timeout_s=15, hold_s=3, start_s=120)
"""For systems of which something is waited for in vain."""

ALWAYS = ("no-merge", "reuse-id", "no-dedupe", "no-repair", "stuck-joiner", "forgetful-merge")
"""One for each scenario; `make test-long` has the others."""
BY_NO_OTHER = ("reuse-id", "early", "amnesia", "stuck-joiner")


def together(*suites: tuple[list[str], ConformSettings, tuple[str, ...], Path | None]) -> list[ConformReport]:
    """Many suites, five at a time: they mostly wait."""

    async def main() -> list[ConformReport]:
        room = asyncio.Semaphore(5)

        async def one(
            command: list[str], settings: ConformSettings, only: tuple[str, ...], trace: Path | None
        ) -> ConformReport:
            async with room:
                return await run_suite(command, settings, only, trace)

        return await asyncio.gather(*(one(*suite) for suite in suites))

    return asyncio.run(main())


@pytest.fixture(scope="module")
def broken(request: pytest.FixtureRequest) -> dict[str, ConformReport]:
    """The mistakes that are asked for, under the scenario that is for each, or under all."""
    asked: dict[str, tuple[str, ...]] = {}
    for item in request.session.items:
        if isinstance(item, pytest.Function) and item.module is request.module and hasattr(item, "callspec"):
            mistake = str(item.callspec.params["mistake"])
            every = item.originalname == test_and_by_no_other.__name__ or asked.get(mistake) == ()
            asked[mistake] = () if every else (FOUND_BY[mistake][0],)
    node = str(Path(__file__).parent / "broken.py")
    suites = [([PYTHON, node, mistake], IMPATIENT, only, None) for mistake, only in asked.items()]
    return dict(zip(asked, together(*suites), strict=True))


def verdicts(report: ConformReport) -> dict[str, str]:
    assert report.error is None, report.error
    return {v.scenario: v.verdict for v in report.verdicts}


def why(report: ConformReport) -> str:
    return "\n".join(f"{v.scenario}: {v.verdict}: {reason}" for v in report.verdicts for reason in v.reasons)


def test_every_mistake_has_its_scenario_and_every_scenario_its_mistake() -> None:
    assert set(FOUND_BY) == set(MISTAKES)
    assert {scenario for scenario, _ in FOUND_BY.values()} == set(SCENARIOS)


@pytest.mark.parametrize("mistake", few([*ALWAYS, *sorted(set(MISTAKES) - set(ALWAYS))], len(ALWAYS)))
def test_a_mistake_is_found_by_its_scenario(broken: dict[str, ConformReport], mistake: str) -> None:
    scenario, said = FOUND_BY[mistake]
    report = broken[mistake]
    assert verdicts(report)[scenario] == FAIL and not report.ok
    (verdict,) = (v for v in report.verdicts if v.scenario == scenario)
    assert any(said in reason for reason in verdict.reasons), why(report)


@pytest.mark.parametrize("mistake", few(BY_NO_OTHER, 1))
def test_and_by_no_other(broken: dict[str, ConformReport], mistake: str) -> None:
    failed = [scenario for scenario, verdict in verdicts(broken[mistake]).items() if verdict == FAIL]
    assert failed == [FOUND_BY[mistake][0]], why(broken[mistake])


def test_the_example_passes_also_with_more_nodes(tmp_path: Path) -> None:
    six = replace(PATIENT, nodes=6)
    three, more = together((EXAMPLE, PATIENT, (), tmp_path), (EXAMPLE, six, ("triangle", "partition-heal"), None))
    assert verdicts(three) == dict.fromkeys(SCENARIOS, PASS), why(three)
    assert verdicts(more) == {"triangle": PASS, "partition-heal": PASS}, why(more)
    for report in (three, more):
        assert not [note for v in report.verdicts for note in v.notes]
    for name in SCENARIOS:
        assert judge(read(tmp_path / f"{name}.jsonl")).ok


def test_ours_passes_and_the_trace_says_so_too(tmp_path: Path) -> None:
    (report,) = together((OURS, PATIENT, (), tmp_path))
    assert verdicts(report) == dict.fromkeys(SCENARIOS, PASS), why(report)
    assert report.features == ["fifo", "causal", "reliable", "datagrams", "loss", "late-join", "restart"]
    assert not [note for v in report.verdicts for note in v.notes]  # the tricks bit
    for verdict in report.verdicts:
        found = judge(read(tmp_path / f"{verdict.scenario}.jsonl"))
        assert found.ok and found.total.deliveries == sum(map(len, verdict.deliveries.values()))
        assert found.total.in_order == found.total.deliveries


def test_ours_is_judged_by_what_it_claims(tmp_path: Path) -> None:
    causal, fifo = ([*OURS, "--order", order] for order in ("causal", "fifo"))
    weaker, weakest = together(
        (causal, PATIENT, ("triangle", "tail-loss", "partition-heal"), tmp_path / "causal"),
        (fifo, PATIENT, ("triangle", "duplicate"), tmp_path / "fifo"),
    )
    assert verdicts(weaker) == {"triangle": PASS, "tail-loss": NOT_SUPPORTED, "partition-heal": PASS}, why(weaker)
    assert verdicts(weakest) == {"triangle": NOT_SUPPORTED, "duplicate": PASS}, why(weakest)


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node.js")
def test_another_language_and_a_system_that_claims_less() -> None:
    (report,) = together(([str(shutil.which("node")), str(ROOT / "examples" / "conform_causal.js")], PATIENT, (), None))
    passes = {"triangle": PASS, "partition-heal": PASS}
    assert verdicts(report) == dict.fromkeys(SCENARIOS, NOT_SUPPORTED) | passes, why(report)
    assert "needs restart, which the system does not claim" in why(report)
