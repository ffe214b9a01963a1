"""What a delivery can be, and what each delivery order forbids. The only place that says so.

========== ==================== ====================================== ===========================================
rule       broken by            binds                                  says
========== ==================== ====================================== ===========================================
integrity  unknown, duplicate   everybody                              only what was published is delivered, once
fifo       inverted, same       `fifo`                                 a publisher's events come in its order
           publisher
causal     inverted             `causal`, `reliable`, `total`          no effect before its cause
disorder   another event next   `total`                                all members in this order have one sequence
           to the same                                                 (`sequence`)
gap        over a gap           `reliable`                             nothing in the past of an event is skipped
agreement  never delivered      `reliable`                             what a live member has, or a live publisher
                                                                       published, arrives
silence    nothing delivered    all other orders                       a live member gets something of others
rate       too many inverted    `probabilistic`                        a cluster inverts no larger share of deliveries
                                                                       than its contract allows (`rates`)
drop       after a drop         everybody                              what a member dropped it does not deliver
reused id  -                    everybody                              an event id is used once
two owners -                    everybody                              a ticket has one owner at a time
impossible -                    everybody                              no step waits for what waits for it
========== ==================== ====================================== ===========================================

`causal` and `reliable` include `fifo`: an inversion of one publisher's events breaks the rule `causal` there. `causal`
may lose events and `probabilistic` may also invert a few of them; neither may deliver one twice. A trace does not tell
what a contract allows: `rate` is judged only if the caller gives the bound. Members of a cluster that is ordered by a
mechanism of the survey join as `causal`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from whence.errors import UnknownOrder


class Verdict(IntEnum):
    """What happened-before says about one delivery, whatever order the member promises. The numbers are those of the
    batch form."""

    IN_ORDER = 0
    INVERTED = 1
    """Delivered after an event that it causally precedes."""
    FIFO_INVERTED = 2
    """Inverted, and after a later event of the same publisher."""
    OVER_GAP = 3
    """It skips something in its past that was neither delivered here nor covered by the snapshot the member began
    with."""
    AFTER_GAP = 4
    """It skips nothing new, but something in its past was skipped here before and has not come since."""
    DUPLICATE = 5
    UNKNOWN = 6
    """Nobody has published it."""

    @property
    def text(self) -> str:
        """The name in tables and on the page."""
        return _TEXTS[self]


_TEXTS: Final = ("in order", "inverted", "inverted", "over a gap", "after a gap", "duplicate", "unknown")
NAMES: Final = tuple(dict.fromkeys(_TEXTS))
"""The names of verdicts. Both inversions have the same."""
INVERSIONS: Final = frozenset((Verdict.INVERTED, Verdict.FIFO_INVERTED))

INTEGRITY, FIFO, CAUSAL, GAP = "integrity", "fifo", "causal", "gap"
AGREEMENT, SILENCE, DROP, RATE, DISORDER = "agreement", "silence", "drop", "rate", "disorder"
REUSED_ID, TWO_OWNERS, IMPOSSIBLE = "reused id", "two owners", "impossible"
RULES: Final = (
    CAUSAL, FIFO, INTEGRITY, DISORDER, GAP, AGREEMENT, SILENCE, DROP, RATE, REUSED_ID, TWO_OWNERS, IMPOSSIBLE,
)  # fmt: skip

SILENT: Final = 20
"""A member may lose events. One that has none of others is only held silent if other live members have at least so
many that were due to it: fewer may have been lost one by one, or have been under way at the end."""


class OrderPromise(NamedTuple):
    """What a member with one order promises its application."""

    says: str
    """For people, in a few words."""
    forbids: dict[Verdict, str]
    """Verdict -> the rule that it breaks."""
    agreement: bool = False
    """It delivers everything that a live member has, or that a live member published."""
    rate: bool = False
    """It may invert deliveries, but not too many."""
    sequence: bool = False
    """It delivers a part of one sequence, the same for all members with this promise."""


_INTEGRITY: Final = {Verdict.UNKNOWN: INTEGRITY, Verdict.DUPLICATE: INTEGRITY}
_CAUSAL: Final = {**_INTEGRITY, Verdict.INVERTED: CAUSAL, Verdict.FIFO_INVERTED: CAUSAL}

PROMISES: Final[dict[str, OrderPromise]] = {
    "unordered": OrderPromise("nothing twice", _INTEGRITY),
    "fifo": OrderPromise("each publisher's order", {**_INTEGRITY, Verdict.FIFO_INVERTED: FIFO}),
    "causal": OrderPromise("no inversion; may skip", _CAUSAL),
    "reliable": OrderPromise(
        "no inversion; skips only what no living member holds", {**_CAUSAL, Verdict.OVER_GAP: GAP}, agreement=True
    ),
    "probabilistic": OrderPromise("few inversions, each with an alert", _INTEGRITY, rate=True),
    "total": OrderPromise("one sequence for all in this order, no inversion", _CAUSAL, sequence=True),
}
"""Order -> what it promises."""

DEFAULT: Final = "causal"
"""The order of a member whose trace does not say: it has no `join` row, or one without an order."""
UNTOLD: Final = "untold"
"""The order of a member whose `join` row may be among its missing steps. It is held only to what binds everybody."""
_UNTOLD: Final = OrderPromise("nothing twice, as far as is known", _INTEGRITY)


def declared(order: str | None, member: str = "") -> str:
    """The order that a `join` row declares; None means `DEFAULT`. UnknownOrder, never "promises nothing", for a name
    that is not known. `member`: whose order it is, for the message."""
    if order is not None and order not in PROMISES:
        who = f"{member}: " if member else ""
        raise UnknownOrder(f"{who}unknown order {order!r} (known: {', '.join(PROMISES)})")
    return DEFAULT if order is None else order


def promise(order: str | None) -> OrderPromise:
    """What `order` promises; None means `DEFAULT`."""
    return _UNTOLD if order == UNTOLD else PROMISES[declared(order)]


def rule_broken(order: str | None, verdict: Verdict) -> str | None:
    """The rule that a delivery with this verdict breaks at a member of this order; None if it breaks none."""
    return promise(order).forbids.get(verdict)
