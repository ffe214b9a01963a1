"""Beyond one cluster: bridges between clusters, and publishers that are no members (docs/survey.md)."""

from whence.bridge.envelope import Reader, Said, everywhere
from whence.bridge.live import Bridge

__all__ = ["Bridge", "Reader", "Said", "everywhere"]
