"""The page a person looks at: what happened in a run, and whether order held."""

from whence.report.facts import Facts, Finding, Found, gather
from whence.report.page import render, write

__all__ = ["Facts", "Finding", "Found", "gather", "render", "write"]
