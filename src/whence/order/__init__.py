"""Delivery orders: `unordered`, `fifo`, `causal`, `reliable`, `probabilistic`, and the recovery of what gossip lost."""

from whence.order.config import FREE_ORDERS, ORDERS, RANK, TICKET_ORDERS, OrderConfig
from whence.order.contract import Contract
from whence.order.engine import TicketOrdering
from whence.order.explain import Blocked, Missing
from whence.order.interface import OrderContext, Ordering, Seal
from whence.order.probabilistic import ProbabilisticOrdering
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
    "Missing",
    "OrderConfig",
    "OrderContext",
    "OrderStats",
    "Ordering",
    "ProbabilisticOrdering",
    "Seal",
    "StampedOrdering",
    "SurveyConfig",
    "TicketOrdering",
    "make",
]


def make(context: OrderContext) -> Ordering:
    """The order layer of one member, as its settings want it."""
    if context.config.mechanism:
        return StampedOrdering(context)
    return TicketOrdering(context) if context.config.contract is None else ProbabilisticOrdering(context)
