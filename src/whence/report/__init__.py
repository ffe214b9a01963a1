"""The page a person looks at: what happened in a run, and whether order held."""

from whence.report.diagram import Suspect
from whence.report.facts import Facts, Found, gather
from whence.report.page import render, write

__all__ = ["Facts", "Found", "Suspect", "gather", "render", "write"]
