"""Beyond one cluster: bridges between clusters, and publishers that are no members (docs/survey.md)."""

from whence.bridge.client import Client
from whence.bridge.door import Door
from whence.bridge.envelope import Reader, Said, everywhere, local
from whence.bridge.live import Bridge
from whence.bridge.merge import merge

__all__ = ["Bridge", "Client", "Door", "Reader", "Said", "everywhere", "local", "merge"]
