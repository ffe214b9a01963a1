"""What was found wrong, or could not be judged: as fields for machines and as a sentence for people.

The fields are the interface. Nobody takes a sentence apart.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from whence.audit.judge.promises import (
    AGREEMENT,
    DISORDER,
    DROP,
    IMPOSSIBLE,
    INTEGRITY,
    RATE,
    REUSED_ID,
    SILENCE,
    Verdict,
)


class EventName(NamedTuple):
    """An event, as sentences name it."""

    id: str
    origin: str
    """The member that published it."""
    seq: int
    """Its number among that member's events in the trace, from 1. No sentence says it: where rows are missing the
    member may have counted otherwise."""

    def __str__(self) -> str:
        """`0:1.0.1:3@m0#1`; an id that does not name its publisher: `e17 of m0#1`."""
        return self.id if self.origin in self.id else f"{self.id} of {self.origin}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One broken promise; or, with `doubt`, one that may be broken: the trace does not tell."""

    rule: str
    """One of `promises.RULES`, or of `clocks.RULES` for a foreign log."""
    member: str
    """Who broke it; empty: the cluster as a whole."""
    step: int | None = None
    """The member's step (`lseq`) at which it shows; None: at no single one."""
    event: str | None = None
    """The event that was delivered, published or missed."""
    witnesses: tuple[str, ...] = ()
    """The events that show it, at most three: the cause before the effect."""
    sentence: str
    """What is wrong, for people. It names the members and the events."""
    doubt: str | None = None
    """The member whose trace is absent or incomplete, so that this cannot be judged; None: there is no doubt."""

    def __str__(self) -> str:
        return self.sentence


class Doubt(msgspec.Struct, frozen=True):
    """What cannot be judged because of one member's trace."""

    member: str
    """Whose trace it is."""
    why: str
    """What is the matter with it: one of the reasons below."""
    count: int
    """Deliveries and events that depend on it, and its steps that are missing."""

    def __str__(self) -> str:
        return f"{self.count:,} {'case' if self.count == 1 else 'cases'} cannot be judged: {self.member}: {self.why}"


NO_TRACE: Final = "no row of it is here"
MISSING_STEPS: Final = "steps are missing in its trace"
OPEN_END: Final = "its trace may end too early: it has no `leave` or `crash` at its end"
UNKNOWN_START: Final = "a state that it began with or went on from is not in the trace"


def why(here: bool, torn: bool, ended: bool) -> str:
    """What is the matter with the trace of a member that leaves a doubt: it is not there, torn, or may go on."""
    return NO_TRACE if not here else MISSING_STEPS if torn else UNKNOWN_START if ended else OPEN_END


NOBODY: Final = "a member that the id does not name"
"""In the place of a member's name."""


# -- the sentences: the same ones for the incremental and for the batch form


def of_delivery(
    rule: str, member: str, step: int | None, verdict: Verdict, event: EventName, other: EventName
) -> Finding:
    """A delivery of what somebody published. `other`: what it is wrong with respect to: the effect that came first, or
    the cause that is missing."""
    witnesses: tuple[str, ...] = (event.id, other.id)
    if verdict is Verdict.DUPLICATE:
        witnesses, said = (event.id,), f"{member} delivered {event} a second time"
    elif verdict is Verdict.OVER_GAP:
        witnesses, said = (other.id, event.id), f"{member} delivered {event} without {other} before it"
    else:  # who published the cause, who published the effect knowing it, who saw them the wrong way round
        said = f"{member} delivered {other} and then {event}; but {other.origin} published the former with the latter"
        said += " in its past"
    return Finding(rule=rule, member=member, step=step, event=event.id, witnesses=witnesses, sentence=said)


def disorder(member: str, step: int | None, event: str, beside: str, other: str, who: str, after: bool) -> Finding:
    """A delivery at another place of the one sequence than at another member."""
    where, mine, first = ("after", event, beside) if after else ("before", beside, event)
    said = f"{member} delivered {mine} right {where} {first}; {who} delivered {other} there"
    return Finding(rule=DISORDER, member=member, step=step, event=event, witnesses=(first, mine, other), sentence=said)


def unknown(member: str, step: int | None, event: str | None) -> Finding:
    """A delivery of what nobody has published."""
    said = f"{member} delivered {event or 'an event without an id'}, which nobody has published"
    witnesses = (event,) if event is not None else ()
    return Finding(rule=INTEGRITY, member=member, step=step, event=event, witnesses=witnesses, sentence=said)


def missed(member: str, first: EventName, more: int, there: bool) -> Finding:
    """A live member never delivered `first`, nor `more` events after it. `there`: another one has it; otherwise its
    publisher is alive."""
    rest = f" nor the {more} after it" if more else ""
    whose = "another live member did" if there else "its publisher is alive"
    said = f"{member} never delivered {first}{rest}; {whose}"
    return Finding(rule=AGREEMENT, member=member, event=first.id, witnesses=(first.id,), sentence=said)


def silent(member: str, events: int) -> Finding:
    """A live member has nothing of others, of so many events that other live members have."""
    said = f"{member} delivered nothing of others; {events:,} events that other live members have were due to it"
    return Finding(rule=SILENCE, member=member, sentence=said)


def too_many(said: str) -> Finding:
    """A cluster inverts more than it may. `said`: how many (`rates.Rate`)."""
    return Finding(rule=RATE, member="", sentence=said)


def after_drop(member: str, step: int | None, event: str) -> Finding:
    """A delivery of what the member has dropped."""
    said = f"{member} delivered {event}, which it had dropped"
    return Finding(rule=DROP, member=member, step=step, event=event, witnesses=(event,), sentence=said)


def reused(member: str, step: int | None, event: str) -> Finding:
    """A publish under an id that was used before, by whatever owner."""
    said = f"{member} published {event}, but the id {event.partition('@')[0]} was used before"
    return Finding(rule=REUSED_ID, member=member, step=step, event=event, witnesses=(event,), sentence=said)


def impossible(member: str, step: int | None, event: str | None) -> Finding:
    """A step that waits for what waits for it: a delivery, or a join (without `event`). No execution leaves such a
    trace."""
    said = f"delivered {event} before it can have been published" if event else "began with a state not taken by then"
    said = f"an impossible trace: {member} {said}; members wait for each other in a circle"
    witnesses = (event,) if event else ()
    return Finding(rule=IMPOSSIBLE, member=member, step=step, event=event, witnesses=witnesses, sentence=said)
