"""The HTML report of a run: what happened, and whether order held."""

from whence.report.diagram import Suspect
from whence.report.facts import Facts, Verdicts, gather
from whence.report.page import render, write

__all__ = ["Facts", "Suspect", "Verdicts", "gather", "render", "write"]
