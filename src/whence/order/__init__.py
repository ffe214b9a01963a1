"""Delivery orders: `unordered`, `fifo`, `causal`, `reliable`, `probabilistic`, and the recovery of what gossip lost."""

from whence.order.config import ORDERS as ORDERS
from whence.order.config import RANK as RANK
from whence.order.config import TICKET_ORDERS as TICKET_ORDERS
from whence.order.config import OrderConfig as OrderConfig
from whence.order.contract import Contract as Contract
from whence.order.engine import TicketOrdering as TicketOrdering
from whence.order.explain import Blocked as Blocked
from whence.order.interface import Numbering as Numbering
from whence.order.interface import OrderContext as OrderContext
from whence.order.interface import Ordering as Ordering
from whence.order.interface import Seal as Seal
from whence.order.survey.config import MECHANISMS as MECHANISMS
from whence.order.survey.config import SurveyConfig as SurveyConfig


def make(context: OrderContext) -> Ordering:
    """The order layer of one member, as its settings want it."""
    if context.config.mechanism:
        from whence.order.stamped import StampedOrdering  # members with tickets need neither of these

        return StampedOrdering(context)
    if context.config.contract is not None:
        from whence.order.probabilistic import ProbabilisticOrdering

        return ProbabilisticOrdering(context)
    return TicketOrdering(context)
