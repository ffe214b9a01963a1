"""What a member asks of its order layer. One interface for every clock: tickets, (N, R, K), the survey's mechanisms."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from whence.core.clock import AnyFrame, Digest, Entry, MemberId
from whence.core.order.buffers import RecoveryBuffer
from whence.core.order.config import OrderConfig
from whence.core.order.explain import Blocked
from whence.core.order.messages import AckRecover, OrderState, Recover
from whence.core.order.outputs import OrderOutput, OrderSend
from whence.core.order.stats import OrderStats
from whence.errors import UsageError


class Seal(Protocol):
    """Roles: publishers hold the key that signs, everybody verifies. Handed in, because keys are not the protocol's
    business."""

    @property
    def may_publish(self) -> bool:
        """It can sign."""
        ...

    def sign(self, data: bytes) -> bytes: ...

    def verify(self, data: bytes, signature: bytes) -> bool: ...


class OrderContext(NamedTuple):
    """What an order layer is built from."""

    me: MemberId
    config: OrderConfig
    rng: random.Random
    members: Callable[[], Sequence[MemberId]]
    """The members known, without this one."""
    sample: Callable[[int], Sequence[MemberId]]
    """At most so many of them, at random."""
    seal: Seal | None = None


class Numbering(NamedTuple):
    """The ids of a member's next events: `before`, a number that counts up from `first`, `after`."""

    before: str
    first: int
    after: str


class Ordering(ABC):
    """The order layer of one member: frames in, deliveries out."""

    joining: bool
    """There is no clock yet: nothing is delivered, what arrives waits."""
    stats: OrderStats
    buffer: RecoveryBuffer[Any, Any]
    held: Mapping[Any, Any]
    """Frames received and not deliverable yet, by key."""

    # -- frames -------------------------------------------------------------------------------------------------

    @abstractmethod
    def publish(
        self, payloads: Sequence[bytes], now: int, tenure: tuple[int, int] | None = None
    ) -> tuple[AnyFrame, list[OrderOutput]]:
        """Stamp a frame, keep it for recovery, deliver it locally. `tenure`: the ticket and its incarnation, in a
        cluster with tickets."""

    @abstractmethod
    def numbering(self, tenure: tuple[int, int] | None = None) -> Numbering:
        """The ids that the next published events will have."""

    @abstractmethod
    def vet(self, frame: AnyFrame, sender: MemberId) -> None:
        """Raise a `BadFrame` for what no honest peer sends, before the frame is kept or forwarded. The wire has checked
        that it does not contradict itself (`frame.check`)."""

    @abstractmethod
    def receive(
        self, frame: AnyFrame, sender: MemberId, age: int, now: int, recovered: bool = False
    ) -> list[OrderOutput]:
        """A vetted frame, seen by gossip for the first time or recovered."""

    # -- peers --------------------------------------------------------------------------------------------------

    @abstractmethod
    def on_recover(self, sender: MemberId, message: Recover) -> list[OrderOutput]:
        """RECOVER: give what `B` holds, and say what it does not."""

    @abstractmethod
    def on_ack_recover(self, sender: MemberId, message: AckRecover, now: int) -> list[OrderOutput]:
        """ACKRECOVER: as `receive`, for each frame."""

    @abstractmethod
    def heard(self, sender: MemberId, digest: object, now: int) -> None:
        """A peer's digest: pursue what the peer has and this member has not."""

    @abstractmethod
    def digest(self) -> Digest | tuple[tuple[MemberId, int], ...] | None:
        """What this member has delivered, for its peers; None while joining."""

    @abstractmethod
    def count_copies(
        self, token: int, events: Sequence[str], copies: int, patience: int, now: int
    ) -> list[OrderOutput]:
        """Find out whether so many members hold these own events (`order.copies`)."""

    @abstractmethod
    def hand_over(self, to: MemberId) -> OrderSend | None:
        """Give the end of `B` to a member that has not asked for it: because this one leaves, or because a joiner has
        the events in its state and could give them to nobody. None: `B` is empty."""

    # -- time ---------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def wake_at(self) -> int | None:
        """When `wake` is due."""

    @abstractmethod
    def wake(self, now: int) -> list[OrderOutput]:
        """Ask for what is due, skip what is overdue, forget what is old."""

    # -- state --------------------------------------------------------------------------------------------------

    def found(self, others: Sequence[MemberId]) -> None:  # noqa: B027 - most need not be told
        """The cluster begins, with these others."""

    @abstractmethod
    def begin(self, now: int) -> list[OrderOutput]:
        """Start from the present clock (zero, a snapshot's, a checkpoint's), with the frames that arrived meanwhile."""

    @abstractmethod
    def state(self) -> OrderState:
        """The state to restart from."""

    def admit(self, joiner: MemberId, weaker: bool = False) -> OrderState:
        """The state for a joiner. `weaker`: the joiner's order promises more than this member's. `UsageError`: this
        member cannot admit others."""
        return self.state()

    @abstractmethod
    def load(self, state: OrderState, now: int) -> None:
        """Take over a state from a snapshot or a checkpoint; `BadMessage` if it is of another kind of cluster."""

    @abstractmethod
    def keep(self, frame: AnyFrame, sender: MemberId, now: int) -> list[OrderOutput]:
        """Keep a vetted frame of an earlier life, or of a snapshot, in `B`: others may still need it."""

    # -- for people ---------------------------------------------------------------------------------------------

    @abstractmethod
    def why_blocked(self, event: str) -> Blocked:
        """What is missing before this event, who was asked, until when."""

    @abstractmethod
    def buffers(self) -> dict[str, tuple[int, int]]:
        """Every bounded buffer: fill and bound."""

    # -- tickets; without them there is nothing to do -----------------------------------------------------------

    blocking: bool = False
    """It waits for missing events instead of skipping them (`reliable`)."""

    @property
    def T(self) -> Sequence[Entry]:
        """The causal present: the newest event delivered on each ticket."""
        return ()

    def note_owner(self, ticket: int, inc: int, owner: MemberId) -> None:  # noqa: B027
        """The ring says who owns this incarnation of a ticket."""

    def expect(self, ticket: int, entry: Entry, now: int) -> None:  # noqa: B027
        """The ring says that this was published: pursue it at once (a new owner catches up before it publishes)."""

    def caught_up(self, ticket: int, entry: Entry) -> bool:
        """Everything on the ticket up to `entry` is delivered or given up."""
        return True

    def forgo(self, ticket: int, entry: Entry, now: int) -> list[OrderOutput]:
        """Stop waiting for `expect`ed events: they are skipped here."""
        return []

    # -- (N, R, K) clocks; other orders have none ---------------------------------------------------------------

    @property
    def clock_size(self) -> tuple[int, int] | None:
        """R and K of the clock that this member publishes under."""
        return None

    def measured(self) -> dict[str, float]:
        """The clock and what is known of its contract, as numbers."""
        return {}

    def move(self, R: int, K: int, now: int) -> list[OrderOutput]:
        """Begin a generation of R entries and K keys: publish under it from now on, as will all who see it."""
        raise UsageError("this cluster has tickets or a mechanism, and no (N, R, K) clock")
