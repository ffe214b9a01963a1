"""Causally ordered group communication at gossip scale: what an application needs.

    async with whence.join("lobby", ["127.0.0.1:7001"], secret=...) as cluster, cluster.publisher() as publisher:
        await publisher.publish(b"hello")
        async for event in cluster.events(): ...

`help(whence.join)` has all options; docs/api.md lists all names. Besides: `whence.live` (bridges, replicated objects,
metrics), `whence.testing` (clusters in memory, faults), `whence.audit` (judge what happened) and `whence.lab`
(simulate, size, reproduce).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.errors import (
    ClusterClosed,
    ConfigError,
    DiskError,
    Forked,
    Jumped,
    KeysError,
    LeftOut,
    NotAccepted,
    NoTicket,
    NotJoined,
    NotPublished,
    TimedOut,
    TooFewCopies,
    UsageError,
    WhenceError,
)
from whence.exports import exports

if TYPE_CHECKING:
    from whence.core.config import Settings
    from whence.core.order import Contract
    from whence.core.order.config import OrderName
    from whence.live.api import Cluster, bootstrap, create, join, run
    from whence.live.events import Event, EventBatch
    from whence.live.net.host import Host
    from whence.live.net.node import MemberChange
    from whence.live.publisher import Publisher

__version__ = "0.1.0"

__all__ = [
    "Cluster",
    "ClusterClosed",
    "ConfigError",
    "Contract",
    "DiskError",
    "Event",
    "EventBatch",
    "Forked",
    "Host",
    "Jumped",
    "KeysError",
    "LeftOut",
    "MemberChange",
    "NoTicket",
    "NotAccepted",
    "NotJoined",
    "NotPublished",
    "OrderName",
    "Publisher",
    "Settings",
    "TimedOut",
    "TooFewCopies",
    "UsageError",
    "WhenceError",
    "__version__",
    "bootstrap",
    "create",
    "join",
    "run",
]
__getattr__, __dir__ = exports(
    __name__,
    {
        "": "audit lab live testing",
        "live": "web",
        "core.config": "Settings",
        "core.order": "Contract",
        "core.order.config": "OrderName",
        "live.api": "Cluster bootstrap create join run",
        "live.events": "Event EventBatch",
        "live.net.host": "Host",
        "live.net.node": "MemberChange",
        "live.publisher": "Publisher",
    },
    __all__,
)
