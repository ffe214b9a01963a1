"""The audit of traces with Spark (docs/pipeline.md).

from whence.spark import audit
found = audit(df)          # found.verdicts, found.violations, found.members, found.doubts, found.quarantine
"""

from whence.spark.frames import Audit, audit, origins, past
from whence.spark.sources import register

__all__ = ["Audit", "audit", "origins", "past", "register"]
