"""The trace of a run: schema, writers, readers, ShiViz. This room knows nothing of the protocol."""

from whence.trace.replay import by_member, in_causal_order
from whence.trace.schema import COLUMNS, KINDS, TRACE_VERSION, Column, Row

__all__ = ["COLUMNS", "KINDS", "TRACE_VERSION", "Column", "Row", "by_member", "in_causal_order"]
