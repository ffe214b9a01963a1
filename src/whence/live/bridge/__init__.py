"""Beyond one cluster: bridges between clusters, and publishers that are not members (docs/survey.md)."""

from whence.live.bridge.door import Client, Door
from whence.live.bridge.envelope import Reader, Said, everywhere, local
from whence.live.bridge.groups import Groups
from whence.live.bridge.live import Bridge
from whence.live.bridge.merge import merge

__all__ = ["Bridge", "Client", "Door", "Groups", "Reader", "Said", "everywhere", "local", "merge"]
