"""The conformance kit: tests causal broadcast of any system that speaks JSON lines (docs/conform.md).

It does not import the protocol: it judges whence like any other system.
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
