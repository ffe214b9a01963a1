"""The HTML report of a run: what happened, and whether order held."""

from whence.audit.report.diagram import Suspect
from whence.audit.report.facts import Facts, RunVerdicts, gather
from whence.audit.report.page import render, write

__all__ = ["Facts", "RunVerdicts", "Suspect", "gather", "render", "write"]
