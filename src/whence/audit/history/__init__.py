"""Client histories: did a database keep its promise to its clients?

A history is what the clients of a store saw: sessions of transactions of reads and writes. This room reads recorded
histories, decides whether they are read committed, read atomic or causally consistent, and explains a violation by the
smallest cycle it can find. It knows nothing of the rest of the package. docs/histories.md has the definitions.

    from whence.audit.history import check, read
    report = check(read("bugs/yugabyte.txt"))
    report.levels            # {"RC": True, "RA": False, "TCC": False}
"""

from whence.audit.history.check import check
from whence.audit.history.formats import discover, read
from whence.audit.history.levels import LEVELS, Level
from whence.audit.history.model import History, Op, Transaction
from whence.audit.history.report import Anomaly, CycleEdge, HistoryReport

__all__ = [
    "LEVELS",
    "Anomaly",
    "CycleEdge",
    "History",
    "HistoryReport",
    "Level",
    "Op",
    "Transaction",
    "check",
    "discover",
    "read",
]
