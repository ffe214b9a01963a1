"""The audit of traces with Spark (docs/pipeline.md).

    from whence.audit.spark import audit
    found = audit(df)          # found.verdicts, found.violations, found.members, found.doubts, found.quarantine

Names are imported when they are used: some modules of this room serve without Spark, too.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whence.audit.spark.frames import Audit, audit, origins, past
    from whence.audit.spark.keyed import audit_stream
    from whence.audit.spark.sources import register

__all__ = ["Audit", "audit", "audit_stream", "origins", "past", "register"]
_WHERE = {"audit_stream": "keyed", "register": "sources"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"whence.audit.spark.{_WHERE.get(name, 'frames')}"), name)
