"""For users' own tests: clusters without sockets, and faults on purpose."""

from whence.live.net.memory import MemoryNetwork
from whence.live.net.transport import Faults

__all__ = ["Faults", "MemoryNetwork"]
