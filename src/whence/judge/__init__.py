"""Whether every member got what its order promises. Pure, and knows only the trace: an audit must not trust what it
audits."""

from whence.judge.causality import Causality
from whence.judge.findings import Doubt, Finding
from whence.judge.follow import Follower, Judged, judge
from whence.judge.promises import PROMISES, Verdict, promise, rule_broken
from whence.judge.report import Counts, Report

__all__ = [
    "PROMISES",
    "Causality",
    "Counts",
    "Doubt",
    "Finding",
    "Follower",
    "Judged",
    "Report",
    "Verdict",
    "judge",
    "promise",
    "rule_broken",
]
