"""Delivery orders: `unordered`, `fifo`, `causal`, `reliable`, and the recovery of what gossip lost."""

from whence.order.checks import Seal
from whence.order.config import ORDERS, RANK, OrderConfig
from whence.order.engine import Ordering
from whence.order.explain import Blocked, Missing
from whence.order.stats import OrderStats

__all__ = ["ORDERS", "RANK", "Blocked", "Missing", "OrderConfig", "OrderStats", "Ordering", "Seal"]
