"""Causally ordered group communication at gossip scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from whence.errors import (
    ClusterClosed,
    ConfigError,
    CorruptJournal,
    CyclicTopology,
    DiskError,
    JournalInUse,
    KeysError,
    NotAccepted,
    NoTicket,
    NotJoined,
    NotPublished,
    TimedOut,
    TooFewCopies,
    TraceError,
    UsageError,
    WhenceError,
)

if TYPE_CHECKING:
    from whence.live.api import (
        Batches,
        Clock,
        Cluster,
        Contract,
        CouncilStatus,
        CouncilVoter,
        Event,
        EventBatch,
        Events,
        Host,
        MemberChange,
        MemberChanges,
        Options,
        OrderName,
        Publisher,
        Settings,
        bootstrap,
        create,
        join,
        run,
    )

__version__ = "0.1.0"

__all__ = [
    "Batches",
    "Clock",
    "Cluster",
    "ClusterClosed",
    "ConfigError",
    "Contract",
    "CorruptJournal",
    "CouncilStatus",
    "CouncilVoter",
    "CyclicTopology",
    "DiskError",
    "Event",
    "EventBatch",
    "Events",
    "Host",
    "JournalInUse",
    "KeysError",
    "MemberChange",
    "MemberChanges",
    "NoTicket",
    "NotAccepted",
    "NotJoined",
    "NotPublished",
    "Options",
    "OrderName",
    "Publisher",
    "Settings",
    "TimedOut",
    "TooFewCopies",
    "TraceError",
    "UsageError",
    "WhenceError",
    "__version__",
    "bootstrap",
    "create",
    "join",
    "run",
]


def __getattr__(name: str) -> Any:
    """Lazy import of the live API: the core and the tools do without asyncio."""
    if name in __all__:
        from importlib import import_module

        return getattr(import_module("whence.live.api"), name)
    raise AttributeError(f"module 'whence' has no attribute {name!r}")
