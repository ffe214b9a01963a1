"""The conformance kit: tests causal broadcast of any system that speaks JSON lines (docs/conform.md).

It does not import the protocol: it judges whence like any other system.
"""

from whence.audit.conform.scenarios import SCENARIOS
from whence.audit.conform.suite import FAIL, NOT_SUPPORTED, PASS, ConformReport, ScenarioResult, run_suite
from whence.audit.conform.system import FEATURES, ConformSettings

__all__ = [
    "FAIL",
    "FEATURES",
    "NOT_SUPPORTED",
    "PASS",
    "SCENARIOS",
    "ConformReport",
    "ConformSettings",
    "ScenarioResult",
    "run_suite",
]
