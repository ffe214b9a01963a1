"""Whether every member got what its order promises. Pure, and knows only the trace: an audit must not trust what it
audits.

There are two forms. `Causality` takes one step at a time; `Follower` puts the rows of a whole or growing trace into an
order for it. `batch` takes runs as arrays: many in a call, torn ones, and pieces of giant ones."""

from whence.audit.judge.causality import Causality
from whence.audit.judge.findings import Doubt, Finding
from whence.audit.judge.follow import Follower, Judged, judge
from whence.audit.judge.promises import PROMISES, Verdict, promise, rule_broken
from whence.audit.judge.report import Counts, Report

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
