"""For users' own tests: clusters without sockets, and faults on purpose."""

from whence.net.memory import MemoryNetwork
from whence.net.transport import Faults

__all__ = ["Faults", "MemoryNetwork"]
