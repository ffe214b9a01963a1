"""Delivery orders: `unordered`, `fifo`, `causal`, `reliable`, `probabilistic`, and the recovery of what gossip lost."""

from typing import Any

from whence.core.order.config import ORDERS as ORDERS
from whence.core.order.config import RANK as RANK
from whence.core.order.config import TICKET_ORDERS as TICKET_ORDERS
from whence.core.order.config import OrderConfig as OrderConfig
from whence.core.order.contract import Contract as Contract
from whence.core.order.engine import TicketOrdering as TicketOrdering
from whence.core.order.layer import Numbering as Numbering
from whence.core.order.layer import OrderContext as OrderContext
from whence.core.order.layer import Ordering as Ordering
from whence.core.order.layer import Seal as Seal
from whence.core.order.outputs import Blocked as Blocked
from whence.core.order.survey.config import MECHANISMS as MECHANISMS
from whence.core.order.survey.config import SurveyConfig as SurveyConfig


def make(context: OrderContext) -> Ordering[Any, Any]:
    """The order layer of one member, as its settings want it."""
    if context.config.mechanism:
        from whence.core.order.stamped import StampedOrdering  # members with tickets need neither of these

        return StampedOrdering(context)
    if context.config.contract is not None:
        from whence.core.order.probabilistic import ProbabilisticOrdering

        return ProbabilisticOrdering(context)
    if context.config.order == "total":
        from whence.core.order.total import TotalOrdering

        return TotalOrdering(context)
    return TicketOrdering(context)
