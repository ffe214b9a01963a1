"""What the audit of a run that is still going on keeps: all of it can be written down and read again."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from whence.spark.claims import Tenure

HOLE, PASSED = 1, 2
"""Skipped: due to this member, or not (the state it began with lacked it; or it may be in steps that are missing)."""

KINDS: Final = frozenset(("publish", "deliver", "join", "snapshot", "leave", "crash", "ticket"))


class Step(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the audit needs of a row; rows of other kinds only count."""

    kind: str
    event: str | None = None
    origin: str | None = None
    reason: str | None = None
    peer: str | None = None
    order: str | None = None
    token: str | None = None
    ticket: int | None = None
    t: int = 0


class Skipped(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """An event that was skipped: HOLE or PASSED, and the delivery that skipped it."""

    how: int
    origin: int
    seq: int
    lseq: int


class State(msgspec.Struct, array_like=True):
    """What a member has delivered: all up to X, except what it skipped."""

    X: list[int] = []
    rose: list[int] = []
    """The member's step at which each entry of X rose last."""
    skipped: dict[int, dict[int, Skipped]] = {}
    """Origin -> seq -> how; no empty ones."""
    sure: list[int] | None = None
    """None: no steps are missing. Else the origins of which events were delivered since; of the others, any event may
    have been delivered in steps that are missing."""

    def lacks(self) -> list[tuple[int, int]]:
        """What is skipped: (origin, seq)."""
        return [(o, s) for o, of in self.skipped.items() for s in of]

    def copy(self) -> State:
        sure = None if self.sure is None else self.sure.copy()
        return State(self.X.copy(), self.rose.copy(), {o: dict(of) for o, of in self.skipped.items()}, sure)


class Life(msgspec.Struct, array_like=True):
    """One member."""

    name: str
    order: str = "causal"
    alive: bool = True
    ended: bool = False
    """All its steps are known: the next life may go on from here."""
    next: int = 0
    """The step that comes next."""
    ahead: dict[int, Step | None] = {}
    """Steps that wait, by number."""
    blocked: tuple[str, str] | None = None
    """What the next step waits for: ("event", id), ("token", token), ("life", member)."""
    have: State = msgspec.field(default_factory=State)
    last: dict[int, int] = {}
    """Origin -> the largest seq delivered."""
    hole: dict[int, int] = {}
    """Origin -> the first HOLE."""
    taint: dict[int, int] = {}
    """Origin -> an origin with a hole in the past of all it will publish; -1: none; -2: not known."""
    other_taint: int = -1
    """Of origins that are not in `taint`."""
    origin: int = -1
    """Its number, if it publishes."""
    said: list[int] = []
    """The past as of its last publish."""
    seen: list[int] = []
    """What it had delivered before it installed another state."""
    checkpoints: list[str] = []
    """Tokens of its last checkpoints."""


class Judged(NamedTuple):
    """A delivery and its verdict: a row of `verdicts` without run and cluster, and what its explanation needs."""

    member: str
    lseq: int
    event: str | None
    origin: str | None
    seq: int | None
    verdict: str
    order: str
    cause_origin: str | None
    cause_seq: int | None
    cause_event: str | None
    fifo: bool
    """Inverted, and after a later event of the same origin."""
    opener_lseq: int | None
    """Inverted: the step at which the effect was delivered."""


class Published(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An event: the origin's number, its id, its publisher's step, and the entries of its past that rose since its
    origin's event before."""

    origin: int
    event: str
    lseq: int
    t: int
    news: tuple[tuple[int, int, int], ...]
    """Origin, seq, and the publisher's step by which it had that."""


class Changes(msgspec.Struct, array_like=True):
    """What is new since the changes before: all that has to be written down."""

    origins: list[str]
    published: list[Published]
    lives: list[Life]
    taken: dict[str, State]
    dropped: list[str]
    tenures: list[Tenure] = []
    told: list[tuple[str, int]] = []
    earliest: dict[str, tuple[int, str, int, str]] = {}

    def any(self) -> bool:
        """Something is new."""
        return bool(self.lives or self.published or self.taken)
