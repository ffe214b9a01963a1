"""Causally ordered group communication at gossip scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whence.api import Cluster, Contract, Event, Events, Host, Publisher, Seat, join, run

__version__ = "0.1.0"

_API = ("Cluster", "Contract", "Event", "Events", "Host", "Publisher", "Seat", "join", "run")
__all__ = ["Cluster", "Contract", "Event", "Events", "Host", "Publisher", "Seat", "__version__", "join", "run"]


def __getattr__(name: str) -> Any:
    """The live API, imported when it is asked for: the core and the tools do without asyncio."""
    if name in _API:
        from importlib import import_module

        return getattr(import_module("whence.api"), name)
    raise AttributeError(f"module 'whence' has no attribute {name!r}")
