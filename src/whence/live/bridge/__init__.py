"""Beyond one cluster: bridges between clusters, and publishers that are not members (docs/survey.md)."""

from whence.audit.trace.merge import merge
from whence.live.bridge.door import Client, Door
from whence.live.bridge.envelope import Reader, Said, everywhere, local
from whence.live.bridge.groups import Groups
from whence.live.bridge.live import Bridge

__all__ = ["Bridge", "Client", "Door", "Groups", "Reader", "Said", "everywhere", "local", "merge"]
