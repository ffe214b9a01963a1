"""Causally ordered group communication at gossip scale: what an application needs.

    async with whence.join("lobby", ["127.0.0.1:7001"], secret=...) as cluster, cluster.publisher() as publisher:
        await publisher.publish(b"hello")
        async for event in cluster.events(): ...

`help(whence.join)` has all options; docs/api.md lists all names. Besides: `whence.live` (bridges, replicated objects,
metrics), `whence.testing` (clusters in memory, faults), `whence.audit` (judge what happened) and `whence.lab`
(simulate, size, reproduce).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.errors import (
    ClusterClosed,
    ConfigError,
    DiskError,
    KeysError,
    NotAccepted,
    NoTicket,
    NotJoined,
    NotPublished,
    TimedOut,
    TooFewCopies,
    UsageError,
    WhenceError,
)

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
    "Host",
    "KeysError",
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
_WINGS = ("audit", "lab", "live", "testing")
_HOMES = {
    "Contract": "core.order",
    "Event": "live.events",
    "EventBatch": "live.events",
    "Host": "live.net.host",
    "MemberChange": "live.net.node",
    "OrderName": "core.order.config",
    "Publisher": "live.publisher",
    "Settings": "core.config",
}
"""Where a name is, if not in `live.api`."""


def __getattr__(name: str) -> Any:
    """Lazy import of the live API: the core and the tools do without asyncio."""
    from importlib import import_module

    if name in _WINGS:
        return import_module(f"whence.{name}")
    if name in __all__:
        return getattr(import_module(f"whence.{_HOMES.get(name, 'live.api')}"), name)
    raise AttributeError(f"module 'whence' has no attribute {name!r}")


def __dir__() -> list[str]:
    """What one can use."""
    return [*__all__, *_WINGS]
