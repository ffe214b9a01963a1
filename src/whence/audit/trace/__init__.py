"""The trace of a run: schema, writers, readers, ShiViz. Independent of the protocol."""

from whence.audit.trace.read import by_member, read, trace_files
from whence.audit.trace.schema import COLUMNS, KINDS, PARQUET, TRACE_VERSION, Column, Row
from whence.audit.trace.write import JsonlTrace, MemoryTrace, ParquetTrace, RotatingTrace, TraceWriter, open_trace

__all__ = [
    "COLUMNS",
    "KINDS",
    "PARQUET",
    "TRACE_VERSION",
    "Column",
    "JsonlTrace",
    "MemoryTrace",
    "ParquetTrace",
    "RotatingTrace",
    "Row",
    "TraceWriter",
    "by_member",
    "open_trace",
    "read",
    "trace_files",
]
