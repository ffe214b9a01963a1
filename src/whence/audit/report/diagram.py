"""The steps of a run as columns of numbers, for the page's space-time diagram."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from whence.audit.judge.promises import NAMES
from whence.audit.trace import Row

RECOVERED, SKIPPED, VERDICT_SHIFT, WRONG = 1, 2, 2, 32


class Suspect(NamedTuple):
    """A delivery that is not in order."""

    verdict: str
    """One of `promises.NAMES`."""
    wrong: bool
    """The member's order forbids it."""


class Segment(msgspec.Struct):
    """One life of a process: a segment of a lane, and its steps."""

    name: str
    lane: int
    order: str
    first: int
    """Its first step in the columns."""
    last: int
    """One past its last."""
    begin_ms: float
    end_ms: float
    base: tuple[int, int] | None = None
    """(segment, number of its steps) whose deliveries this one starts with: of a snapshot, or of its previous
    life."""


class Diagram(msgspec.Struct):
    """A step is a publish or a delivery. Columns are little-endian arrays in base64, one entry per step, by segment."""

    lanes: list[str]
    lives: list[Segment]
    events: list[str]
    """Event ids; steps name them by index."""
    whole: bool
    """False: the run has more steps than the diagram."""
    event: str
    """uint32: index into `events`."""
    at_ms: str
    """float32: since the start of the run."""
    held_ms: str
    """float32: how long it waited before delivery; -1 for a publish."""
    flags: str
    """uint8: 1 recovered, 2 delivered over a gap, bits 2 to 4 the verdict (an index into `verdicts`), 32 forbidden by
    the member's order."""
    steps: int
    verdicts: tuple[str, ...] = NAMES


_FINE = Suspect(NAMES[0], False)


def address(member: str) -> str:
    """The process of a member: `address#boot` -> `address`."""
    return member.rpartition("#")[0] or member


def draw(steps: list[Row], start: int, suspect: Mapping[tuple[str, int], Suspect], most: int) -> Diagram:
    """`steps` are sorted by member and `lseq`. If there are too many: those nearest in time to the first suspect, or
    the first ones of the run."""
    chosen = [row for row in steps if row.kind in ("publish", "deliver") and row.event is not None]
    whole = len(chosen) <= most
    if not whole:
        centre = min([row.t_ns for row in chosen if (row.member, row.lseq) in suspect] or [row.t_ns for row in chosen])
        chosen = sorted(chosen, key=lambda row: abs(row.t_ns - centre))[:most]
    keep = {(row.member, row.lseq) for row in chosen}
    lanes: dict[str, int] = {}
    events: dict[str, int] = {}
    lives: dict[str, Segment] = {}
    tokens: dict[str, tuple[str, int]] = {}  # snapshot -> (member, its steps so far)
    received: dict[tuple[str, str], tuple[int, bool]] = {}
    event, flags, at, held = array("I"), array("B"), array("f"), array("f")
    for row in steps:
        life = lives.get(row.member)
        ms = (row.t_ns - start) / 1e6
        if life is None:
            lane = lanes.setdefault(address(row.member), len(lanes))
            life = lives[row.member] = Segment(row.member, lane, "", len(event), len(event), ms, ms)
        life.end_ms = max(life.end_ms, ms)
        if row.kind == "join":
            life.order = row.order or ""
        elif row.kind == "snapshot" and row.token is not None:
            tokens[row.token] = (row.member, len(event) - life.first)
        elif row.kind == "receive" and row.event is not None:
            received.setdefault((row.member, row.event), (row.t_ns, row.reason == "recovered"))
        if (row.member, row.lseq) not in keep or row.event is None:
            continue
        since, recovered = received.get((row.member, row.event), (row.t_ns, False))
        verdict, wrong = suspect.get((row.member, row.lseq), _FINE) if row.kind == "deliver" else _FINE
        event.append(events.setdefault(row.event, len(events)))
        at.append(ms)
        held.append(max(0.0, (row.t_ns - since) / 1e6) if row.kind == "deliver" else -1.0)
        code = NAMES.index(verdict) << VERDICT_SHIFT
        flags.append(recovered * RECOVERED + (row.reason == "gap") * SKIPPED + code + wrong * WRONG)
        life.last = len(event)
    _set_bases(steps, lives, tokens)
    return Diagram(
        lanes=list(lanes),
        lives=list(lives.values()),
        events=list(events),
        whole=whole,
        steps=len(event),
        event=_packed(event.tobytes()),
        at_ms=_packed(at.tobytes()),
        held_ms=_packed(held.tobytes()),
        flags=_packed(flags.tobytes()),
    )


def _packed(column: bytes) -> str:
    return base64.b64encode(column).decode("ascii")


def _set_bases(steps: list[Row], lives: dict[str, Segment], tokens: dict[str, tuple[str, int]]) -> None:
    """Set what each segment starts with."""
    names = {name: index for index, name in enumerate(lives)}
    for row in steps:
        if row.kind != "join" or row.reason not in ("snapshot", "checkpoint"):
            continue
        if row.token in tokens:
            name, upto = tokens[row.token]
            lives[row.member].base = (names[name], upto)
        elif row.peer in lives:
            former = lives[row.peer]
            lives[row.member].base = (names[row.peer], former.last - former.first)
