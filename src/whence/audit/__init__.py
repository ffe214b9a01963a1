"""What happened, and was it right.

`trace` reads and writes what members did, one row a step. `judge` says from the rows alone whether each order kept its
promise; `spark` does that for files and DataFrames of any size; `report` draws the page. `history` checks what clients
of a database saw; `conform` tests the causal broadcast of any system. Nothing here imports the protocol: an audit must
not trust what it audits.

Trace files, in this process or on Spark (`session()` gives a session, any other will do):

    from whence.audit import audit_files, session
    found = audit_files(["traces"], "out")                    # tables, out/report.html; found.clean, found.violations
    found = audit_files(["s3://bucket/traces"], "out", spark=session())

A DataFrame of one's own; a stream; files as a DataFrame:

    from whence.audit import audit, audit_stream, read_traces
    audit(df).violations.show()                               # verdicts, members, doubts, quarantine, ...
    audit_stream(spark.readStream...).writeStream...
    df = read_traces(spark, ["traces"])                       # also damaged ones

The rows of a trace; a history of a database's clients:

    from whence.audit import check_history, read, read_history
    for row in read("traces"): ...
    check_history(read_history("history.txt")).levels         # {"RC": True, "RA": False, "TCC": False}
    check_histories(spark.read.parquet("operations"))         # of a DataFrame: verdicts, findings, order

Names are imported when they are used: nothing loads Spark that does not need it.
"""

from typing import TYPE_CHECKING

from whence.exports import exports

if TYPE_CHECKING:
    from whence.audit.history import check as check_history
    from whence.audit.history import read as read_history
    from whence.audit.spark.driver import Audit, audit, audit_files
    from whence.audit.spark.findings import Summary
    from whence.audit.spark.histories import check as check_histories
    from whence.audit.spark.ingest import read_traces
    from whence.audit.spark.keyed import audit_stream
    from whence.audit.spark.session import session, ship
    from whence.audit.spark.sweep import load_grid, sweep
    from whence.audit.spark.tables import read_table
    from whence.audit.trace import Row, open_trace, read

__getattr__, __dir__ = exports(
    __name__,
    {
        "history": "check_history=check read_history=read",
        "spark.driver": "Audit audit audit_files",
        "spark.findings": "Summary",
        "spark.histories": "check_histories=check",
        "spark.ingest": "read_traces",
        "spark.keyed": "audit_stream",
        "spark.session": "session ship",
        "spark.sweep": "load_grid sweep",
        "spark.tables": "read_table",
        "trace": "Row open_trace read",
    },
)

__all__ = [
    "Audit",
    "Row",
    "Summary",
    "audit",
    "audit_files",
    "audit_stream",
    "check_histories",
    "check_history",
    "load_grid",
    "open_trace",
    "read",
    "read_history",
    "read_table",
    "read_traces",
    "session",
    "ship",
    "sweep",
]
