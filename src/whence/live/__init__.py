"""The runtime, and what applications use: members of `core` on sockets, disks and clocks.

`api.py` has `create`, `join` and `Cluster`; `publisher.py` and `events.py` are how an application publishes and reads.
`net` carries out what members ask for: TCP, TLS, the journal. It makes no protocol decision. On top of it:
replicated `objects`, `bridge`s between clusters and for clients that are not members, `metrics`, and `fleet`, which
starts, kills and collects processes. What most applications need, `whence` itself exports; the rest is here:

    from whence.live import Bridge, Client, MetricsServer, Objects
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whence.live.bridge import Bridge, Client, Door, Reader, Said, everywhere, local, merge
    from whence.live.metrics import MetricsServer, ask
    from whence.live.objects import Counter, Document, Objects, Registers
    from whence.live.objects.live import Live

_WHERE = {
    "bridge": ("Bridge", "Client", "Door", "Reader", "Said", "everywhere", "local", "merge"),
    "metrics": ("MetricsServer", "ask"),
    "objects": ("Counter", "Document", "Objects", "Registers"),
    "objects.live": ("Live",),
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Bridge",
    "Client",
    "Counter",
    "Document",
    "Door",
    "Live",
    "MetricsServer",
    "Objects",
    "Reader",
    "Registers",
    "Said",
    "ask",
    "everywhere",
    "local",
    "merge",
]


def __getattr__(name: str) -> object:
    """Imported when it is used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"whence.live.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
