"""Delivery orders: `unordered`, `fifo`, `causal`, `reliable`, `probabilistic`, and the recovery of what gossip lost."""

from whence.order.checks import Seal
from whence.order.config import FREE_ORDERS, ORDERS, RANK, TICKET_ORDERS, OrderConfig
from whence.order.contract import Contract
from whence.order.engine import Ordering
from whence.order.explain import Blocked, Missing
from whence.order.probabilistic import FreeOrdering
from whence.order.stamped import StampedOrdering
from whence.order.stats import OrderStats
from whence.order.survey.registry import MECHANISMS, SurveyConfig

__all__ = [
    "FREE_ORDERS",
    "MECHANISMS",
    "ORDERS",
    "RANK",
    "TICKET_ORDERS",
    "Blocked",
    "Contract",
    "FreeOrdering",
    "Missing",
    "OrderConfig",
    "OrderStats",
    "Ordering",
    "Seal",
    "StampedOrdering",
    "SurveyConfig",
]
