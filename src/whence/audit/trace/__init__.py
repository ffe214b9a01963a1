"""The trace of a run: schema, writers, readers, ShiViz. Independent of the protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.audit.trace.read import TraceReader, read, trace_files
from whence.audit.trace.schema import COLUMNS, KINDS, TRACE_VERSION, Column, Row

if TYPE_CHECKING:
    from whence.audit.trace.replay import by_member, in_causal_order
    from whence.audit.trace.write import JsonlTrace, MemoryTrace, ParquetTrace, RotatingTrace, TraceWriter, open_trace

__all__ = [
    "COLUMNS",
    "KINDS",
    "TRACE_VERSION",
    "Column",
    "JsonlTrace",
    "MemoryTrace",
    "ParquetTrace",
    "RotatingTrace",
    "Row",
    "TraceReader",
    "TraceWriter",
    "by_member",
    "in_causal_order",
    "open_trace",
    "read",
    "trace_files",
]

_FROM = {
    "replay": ("by_member", "in_causal_order"),
    "write": ("JsonlTrace", "MemoryTrace", "ParquetTrace", "RotatingTrace", "TraceWriter", "open_trace"),
}


def __getattr__(name: str) -> Any:
    """Lazy import: a live member that writes no trace needs none of these."""
    for module, names in _FROM.items():
        if name in names:
            from importlib import import_module

            return getattr(import_module(f"whence.audit.trace.{module}"), name)
    raise AttributeError(f"module 'whence.audit.trace' has no attribute {name!r}")
