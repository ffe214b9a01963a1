"""What a node counts."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class NodeStats:
    """Counters of one node."""

    steps: int = 0
    packets: int = 0
    bad_bytes: int = 0
    """Packets of this cluster that are no message; their senders are cut off."""
    cut_off: int = 0
    """Packets of peers that were cut off before."""
    shed: int = 0
    """Frames thrown away before the member saw them, because the application is behind."""
    unread: int = 0
    """Events thrown away because the application never asked for any."""
    unsent: int = 0
    """Messages thrown away because the disk has stood still for too long."""
    oversize: int = 0
    """Own messages larger than any peer would take."""

    def asdict(self) -> dict[str, int]:
        return {f"net.{f.name}": getattr(self, f.name) for f in fields(self)}
