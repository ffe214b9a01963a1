"""The trace of a run: schema, writers, readers, ShiViz. Independent of the protocol."""

from whence.trace.read import TraceReader, read, trace_files
from whence.trace.replay import by_member, in_causal_order
from whence.trace.schema import COLUMNS, KINDS, TRACE_VERSION, Column, Row
from whence.trace.write import JsonlTrace, MemoryTrace, ParquetTrace, RotatingTrace, TraceWriter, open_trace

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
