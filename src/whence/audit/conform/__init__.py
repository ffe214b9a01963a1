"""The conformance kit: tests causal broadcast of any system that speaks JSON lines (docs/conform.md).

It does not import the protocol: it judges whence like any other system.
"""

from whence.audit.conform.history import Event, History
from whence.audit.conform.judge import Finding, explain, judge
from whence.audit.conform.messages import FEATURES
from whence.audit.conform.scenarios import SCENARIOS, Scenario
from whence.audit.conform.suite import FAIL, NOT_SUPPORTED, PASS, Report, Verdict, run_scenario, run_suite
from whence.audit.conform.system import Settings

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
