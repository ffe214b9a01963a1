"""Whether every member got what its order promises. Pure, and knows only the trace: an audit must not trust what it
audits.

There are two forms. `Causality` takes one step at a time, as they happen. `batch` takes the rows of traces as arrays:
many runs in a call, torn ones, those that grow, and pieces of giant ones; `judge` is that for one run at hand."""

from typing import TYPE_CHECKING

from whence.audit.judge.causality import Causality
from whence.audit.judge.findings import Doubt, Finding
from whence.audit.judge.promises import PROMISES, Verdict, promise, rule_broken
from whence.audit.judge.report import Counts, Report
from whence.exports import exports

if TYPE_CHECKING:
    from whence.audit.judge.batch.whole import judge

__getattr__, __dir__ = exports(__name__, {"batch.whole": "judge"})  # arrays are not in every installation

__all__ = [
    "PROMISES",
    "Causality",
    "Counts",
    "Doubt",
    "Finding",
    "Report",
    "Verdict",
    "judge",
    "promise",
    "rule_broken",
]
