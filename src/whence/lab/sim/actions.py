"""The actions of a simulation, as plain data. A **schedule** is a list of actions, sorted by time.

Every fault and every publish of a run is one action, known before the run starts. So a schedule can be printed, edited,
repeated and shrunk. An action that is impossible at its time (a crash of a process that is down) does nothing, so
removing one action never makes another one an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, get_args

import msgspec

from whence.errors import ConfigError
from whence.lab.sim.settings import Count, Duration, Size, read, write

Lasts = Duration | None


class _Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    at: Duration
    """Time since the start of the run."""


class OfMember(_Action, frozen=True, kw_only=True):
    """At one process, or only in one of its clusters."""

    who: str
    cluster: str = ""


class Crash(_Action, frozen=True, kw_only=True, tag="crash"):
    """The process crashes, in all clusters. With `for` it restarts after that time, with its disk or without."""

    who: str
    lasts: Lasts = msgspec.field(default=None, name="for")
    disk: bool = False
    """Restart from the checkpoint of its last completed step. Without a disk it is new and needs a snapshot."""


class StartAction(_Action, frozen=True, kw_only=True, tag="start"):
    """The process starts: a late joiner, or one that left or crashed without `for`."""

    who: str
    disk: bool = False


class LeaveAction(_Action, frozen=True, kw_only=True, tag="leave"):
    """The process leaves gracefully. With `for` it comes back as a new member after that time."""

    who: str
    lasts: Lasts = msgspec.field(default=None, name="for")


class CoordinateAction(OfMember, frozen=True, kw_only=True, tag="coordinate"):
    """The member wants a ticket from now on."""


class ResignAction(OfMember, frozen=True, kw_only=True, tag="resign"):
    """The member gives its ticket back."""


class Found(OfMember, frozen=True, kw_only=True, tag="found"):
    """The operator founds the ring at this process."""


class Partition(_Action, frozen=True, kw_only=True, tag="partition"):
    """`who` are on one side, all others on the other; nothing crosses. `oneway`: only what `who` send is lost."""

    who: tuple[str, ...]
    lasts: Lasts = msgspec.field(default=None, name="for")
    oneway: bool = False


class Cut(_Action, frozen=True, kw_only=True, tag="cut"):
    """One link is down. `oneway`: only from `src` to `dst`."""

    src: str
    dst: str
    lasts: Lasts = msgspec.field(default=None, name="for")
    oneway: bool = False


class Slow(_Action, frozen=True, kw_only=True, tag="slow"):
    """Messages from `src` to `dst` (empty: to everybody) take this much longer."""

    src: str
    by: Duration
    dst: str = ""
    lasts: Lasts = msgspec.field(default=None, name="for")


class ClockAction(_Action, frozen=True, kw_only=True, tag="clock"):
    """The process's clock jumps forward and runs at another speed from now on."""

    who: str
    drift: Annotated[int, msgspec.Meta(ge=-500_000, le=500_000)] = 0
    """Parts per million faster (or slower) than true time."""
    jump: Duration = 0


OUTSIDER = "outsider#1"
"""Who sends bad bytes, if nobody is named."""


class Hostile(OfMember, frozen=True, kw_only=True, tag="hostile"):
    """Bad bytes arrive at `who`: random, truncated, altered and forged. They come from an outsider or, with `sender`,
    from a faulty member. Needs `wire = true`."""

    sender: str = ""
    messages: Count = 10


class Lie(OfMember, frozen=True, kw_only=True, tag="lie"):
    """`who` sends well-formed messages with invented contents to other members. Needs `wire = true`."""

    messages: Count = 10


class MoveAction(OfMember, frozen=True, kw_only=True, tag="move"):
    """The member starts a clock generation with these entries and keys (a cluster without tickets)."""

    entries: Annotated[int, msgspec.Meta(ge=1)]
    keys: Annotated[int, msgspec.Meta(ge=1)]


class PublishAction(OfMember, frozen=True, kw_only=True, tag="publish"):
    """The application publishes one frame; refused if the member has no ticket then."""

    events: Annotated[int, msgspec.Meta(ge=1)] = 1
    payload: Size = 16
    copies: Annotated[int, msgspec.Meta(ge=1)] = 1
    """Ask afterwards whether so many members hold it."""


Action = (
    Crash
    | StartAction
    | LeaveAction
    | CoordinateAction
    | ResignAction
    | Found
    | Partition
    | Cut
    | Slow
    | ClockAction
    | Hostile
    | Lie
    | MoveAction
    | PublishAction
)
Schedule = tuple[Action, ...]

KINDS: dict[str, type[Action]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Action)}


def read_action(table: Mapping[str, object], where: str, round_ns: int) -> Action:
    """Read one `[[fault]]` table."""
    kind = table.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ConfigError(f"{where}.kind: {kind!r} is not a kind of action; one of: {', '.join(KINDS)}")
    return read(KINDS[kind], {k: v for k, v in table.items() if k != "kind"}, where, round_ns)


def write_action(action: Action) -> dict[str, object]:
    """The inverse of `read_action`."""
    table = write(action)
    kind = type(action).__struct_config__.tag
    return {"at": table.pop("at"), "kind": kind, **table}


def names_in(action: Action) -> tuple[str, ...]:
    """The processes an action names."""
    match action:
        case Partition(who=who):
            return who
        case Cut(src=src, dst=dst) | Slow(src=src, dst=dst):
            return (src, dst) if dst else (src,)
        case Hostile(who=one, sender=sender):
            return (one, sender) if sender else (one,)
        case _:
            return (action.who,)


def _about(ns: int) -> str:
    """Seconds with four digits."""
    return f"{ns / 1e9:.4g}s"


def describe(action: Action) -> str:
    """The action in words; part of the trace."""
    lasts = getattr(action, "lasts", None)
    span = f" for {_about(lasts)}" if lasts is not None else ""
    cluster = getattr(action, "cluster", "")
    where = f" in {cluster}" if cluster else ""
    match action:
        case Crash(who=who, disk=disk):
            back = (", back with its disk" if disk else ", back without its disk") if lasts is not None else ""
            return f"{who} crashes{span}{back}"
        case StartAction(who=who, disk=disk):
            return f"{who} starts{' with its disk' if disk else ''}"
        case LeaveAction(who=who):
            return f"{who} leaves{span}"
        case CoordinateAction(who=who):
            return f"{who} wants a ticket{where}"
        case ResignAction(who=who):
            return f"{who} gives its ticket back{where}"
        case Found(who=who):
            return f"the operator founds the ring at {who}{where}"
        case Partition(who=side, oneway=oneway):
            return f"{'nothing gets out of' if oneway else 'cut off from the rest:'} {' '.join(side)}{span}"
        case Cut(src=src, dst=dst, oneway=oneway):
            return f"link {src} {'->' if oneway else '<->'} {dst} dead{span}"
        case Slow(src=src, dst=dst, by=by):
            return f"link {src} -> {dst or 'all'} slower by {_about(by)}{span}"
        case ClockAction(who=who, drift=drift, jump=jump):
            return f"clock of {who}: drift {drift:+d} ppm, jump {_about(jump)}"
        case Hostile(who=who, sender=sender, messages=n):
            return f"{sender or 'an outsider'} sends {n} bad messages to {who}{where}"
        case Lie(who=who, messages=n):
            return f"{who} tells {n} lies{where}"
        case MoveAction(who=who, entries=entries, keys=keys):
            return f"{who} moves to R = {entries}, K = {keys}{where}"
        case PublishAction(who=who, events=n):
            return f"{who} publishes {n} event{'s' if n > 1 else ''}{where}"


def show(schedule: Schedule) -> str:
    """The schedule as a readable list, one action a line."""
    return "\n".join(f"{a.at / 1e9:10.4f}s  {describe(a)}" for a in schedule)
