"""The runtime, and what applications use: members of `core` on sockets, disks and clocks.

`api.py` has `create`, `join` and `Cluster`; `publisher.py` and `events.py` are how an application publishes and reads.
`net` carries out what members ask for: TCP, TLS, the journal. It makes no protocol decision. On top of it:
`requests`, replicated `objects`, `bridge`s between clusters and for clients that are not members, `metrics`, and
`fleet`, which starts, kills and collects processes. What most applications need, `whence` itself exports; the rest is
here:

    from whence.live import Bridge, Client, MetricsServer, Objects
"""

from typing import TYPE_CHECKING

from whence.exports import exports

if TYPE_CHECKING:
    from whence.live.bridge import Bridge, Client, Door, Groups, Reader, Said, everywhere, local, merge
    from whence.live.metrics import MetricsServer, ask
    from whence.live.objects import Counter, Document, Objects, Registers
    from whence.live.objects.live import Live
    from whence.live.requests import Letter, Requests

__getattr__, __dir__ = exports(
    __name__,
    {
        "": "web",
        "bridge": "Bridge Client Door Groups Reader Said everywhere local merge",
        "metrics": "MetricsServer ask",
        "objects": "Counter Document Objects Registers",
        "objects.live": "Live",
        "requests": "Letter Requests",
    },
)

__all__ = [
    "Bridge",
    "Client",
    "Counter",
    "Document",
    "Door",
    "Groups",
    "Letter",
    "Live",
    "MetricsServer",
    "Objects",
    "Reader",
    "Registers",
    "Requests",
    "Said",
    "ask",
    "everywhere",
    "local",
    "merge",
]
