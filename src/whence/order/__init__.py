"""Delivery orders: `unordered`, `fifo`, `causal`, `reliable`, and the recovery of what gossip lost."""

from whence.order.config import ORDERS, RANK, OrderConfig
from whence.order.engine import Ordering, OrderStats, Seal
from whence.order.explain import Blocked, Missing

__all__ = ["ORDERS", "RANK", "Blocked", "Missing", "OrderConfig", "OrderStats", "Ordering", "Seal"]
