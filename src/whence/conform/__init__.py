"""The conformance kit: what breaks causal broadcast, tried on any system that speaks JSON lines (docs/conform.md).

This room knows nothing of the protocol: it judges ours as it judges others.
"""

from whence.conform.history import Event, History
from whence.conform.judge import Finding, explain, judge
from whence.conform.messages import FEATURES
from whence.conform.scenarios import SCENARIOS, Scenario
from whence.conform.suite import FAIL, NOT_SUPPORTED, PASS, Report, Verdict, run_scenario, run_suite
from whence.conform.system import Settings

__all__ = [
    "FAIL",
    "FEATURES",
    "NOT_SUPPORTED",
    "PASS",
    "SCENARIOS",
    "Event",
    "Finding",
    "History",
    "Report",
    "Scenario",
    "Settings",
    "Verdict",
    "explain",
    "judge",
    "run_scenario",
    "run_suite",
]
