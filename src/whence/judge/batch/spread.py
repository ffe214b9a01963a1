"""A run that is too large to be judged at once, in pieces.

Only the steps of some members matter to others: those that publish (by their rows, or by the id of an event that was
delivered: its publish may be missing), hold a ticket, or give a state that somebody begins with. They are `followed`
first; what is learned from them (the past of every event, and the states) is `Shared` with all pieces of the rest. What
members lack is found at the end, from the state that each one `Ended` with.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.judge.batch import audited, kernel
from whence.judge.batch.audited import Audited, Everybody, doubts
from whence.judge.batch.coding import Known, Needed, code, codes, picked
from whence.judge.batch.rated import Sample, sample
from whence.judge.batch.schemas import SCHEMAS
from whence.judge.batch.verdicts import States, losses, states
from whence.judge.findings import Doubt, Finding


class Scouted(NamedTuple):
    """What some rows tell of who depends on whom."""

    acting: set[str]
    """Publishers and ticket owners."""
    owners: set[str]
    """Members that ids of events name as their owners."""
    gave: set[tuple[str, str]]
    """(token, member that took the state)."""
    tokens: set[str]
    """Tokens that somebody begins with."""
    ended: set[str]
    """Members whose state at their end another one continues from."""


def scouted(table: pa.Table) -> Scouted:
    """Scout rows with the columns member, kind, event, reason, peer and token."""
    kind, kinds = codes(table["kind"])
    member, names = codes(table["member"])
    place = {name: k for k, name in enumerate(kinds.to_pylist())}
    acts = np.isin(kind, [place[k] for k in ("publish", "ticket") if k in place])
    acting = {str(names[m]) for m in np.unique(member[acts]).tolist()}
    found = Scouted(acting, _owners(table["event"]), set(), set(), set())
    special = np.flatnonzero(np.isin(kind, [place[k] for k in ("join", "snapshot") if k in place]))
    for row in picked(table.select(["member", "kind", "reason", "peer", "token"]), special):
        if row["kind"] == "snapshot" and row["token"] is not None:
            found.gave.add((row["token"], row["member"]))
        elif row["token"] is not None and row["reason"] != "genesis":
            found.tokens.add(row["token"])
        elif row["reason"] == "checkpoint" and row["peer"] not in (None, row["member"]):
            found.ended.add(row["peer"])
    return found


def _owners(ids: Any) -> set[str]:
    """`follow.owner_of` of all these ids, at once."""
    _, events = codes(ids)
    after = pc.replace_substring_regex(events, "^[^@]*@", "")
    plain = pc.or_(pc.equal(after, events), pc.equal(after, pa.scalar("")))  # without tickets
    owners: Any = pc.if_else(plain, pc.replace_substring_regex(events, "/?[^/]*$", ""), after)
    return {str(owner) for owner in pc.unique(owners).to_pylist() if owner}


def to_follow(parts: list[Scouted]) -> tuple[set[str], Needed]:
    """The members to follow, and what the others need of them."""
    tokens = set[str]().union(*(part.tokens for part in parts))
    ended = set[str]().union(*(part.ended for part in parts))
    giving = {member for part in parts for token, member in part.gave if token in tokens}
    acting = (part.acting | part.owners for part in parts)
    return ended.union(giving, *acting), Needed(sorted(tokens), sorted(ended))


class Shared(NamedTuple):
    """What the pieces need to know."""

    known: Known
    past: kernel.Past
    taken: States


def followed(table: pa.Table, needed: Needed, complete: bool = False) -> tuple[Audited, Shared]:
    """Judge the members that others depend on. `complete`: as of `coding.code`."""
    a = audited.followed(code(table, needed=needed, complete=complete))
    coded = a.coded
    names = [str(coded.members[m]) for m in coded.member_of.tolist()]
    here = [str(coded.members[m]) for m in np.flatnonzero(audited.there(coded)).tolist()]
    known = Known(coded.events.take(coded.ids), coded.base, here, names, coded.tokens, coded.torn, coded.closed)
    return a, Shared(known, a.past, a.found.taken)


def nothing() -> Shared:
    """What is known when there is nobody to follow."""
    none, base = np.empty(0, np.int32), np.zeros(1, np.int64)
    steps = kernel.Steps(base, np.empty(0, np.int8), none, np.empty(0, np.uint8))
    past, _, _ = kernel.rebuild(steps, kernel.Joins(np.empty(0, np.int8), none), 0, base, np.zeros(1, np.uint8))
    return Shared(Known(pa.array([], pa.string()), base, [], [], [], [], []), past, states(0))


def others(table: pa.Table, shared: Shared, complete: bool = False) -> Audited:
    """Judge a piece of the rest."""
    return audited.others(code(table, known=shared.known, complete=complete), shared.past, shared.taken)


class Ended(NamedTuple):
    """What became of the members of a piece."""

    members: pa.Table
    """Rows of `members`, without losses."""
    ends: States
    elsewhere: list[str]
    """Members that another one continues."""
    doubts: list[Doubt]
    sample: Sample


def ended(a: Audited, members: pa.Table) -> Ended:
    """`members`: the table of this piece."""
    coded = a.coded
    gone = [str(coded.members[m]) for m in np.flatnonzero(coded.superseded).tolist()] + coded.elsewhere
    return Ended(members, _taken(a.found.ends, np.flatnonzero(audited.there(coded))), gone, doubts(a), sample(a))


def _taken(s: States, which: Any) -> States:
    """These states of them. Pools are cut to what is used."""
    entries, skipped = s.used.tolist()
    return States(
        first=s.first[which],
        entries=s.entries[which],
        origin=s.origin[:entries],
        upto=s.upto[:entries],
        unsure=s.unsure[:entries],
        has=s.has[which],
        vague=s.vague[which],
        at=s.at[which],
        size=s.size[which],
        event=s.event[:skipped],
        skipped=s.skipped[:skipped],
        opener=s.opener[:skipped],
        used=s.used,
    )


class AtTheEnd(NamedTuple):
    """What all pieces together tell."""

    members: pa.Table
    """The table, with losses."""
    everybody: Everybody
    found: list[Finding]
    """What members lack, where that is wrong."""
    doubts: list[Doubt]
    """All of them."""


def at_the_end(shared: Shared, pieces: list[Ended], complete: bool = False) -> AtTheEnd:
    """Put the pieces together."""
    members = pa.concat_tables([piece.members for piece in pieces])
    order = pc.sort_indices(members["member"]).to_numpy()
    members = members.take(order)
    names = [str(name) for name in members["member"].to_pylist()]
    gone = {name for piece in pieces for name in piece.elsewhere}
    superseded = np.array([name in gone for name in names], np.uint8)
    alive = np.array(members["alive"].to_pylist(), np.uint8)
    alive[superseded == 1] = 0
    ends = _taken(_joined([piece.ends for piece in pieces]), order)
    at = {name: m for m, name in enumerate(names)}
    member_of = np.array([at[name] for name in shared.known.origins], np.int32)
    orders = [str(o) for o in members["order"].to_pylist()]
    agreement = audited.promise_agreement(orders)
    lost = losses(shared.past, ends, alive, superseded, alive[member_of], agreement)
    columns = {"gaps": lost.gaps, "lost": lost.lost, "lost_of_live": lost.lost_of_live, "disagreements": lost.disagreed}
    for name, values in {**columns, "alive": alive == 1}.items():
        new: Any = values
        place = members.schema.get_field_index(name)
        members = members.set_column(place, SCHEMAS["members"].field(name), pa.array(new))
    named = members["member"].combine_chunks()
    torn = np.array(members["missing"].to_pylist(), np.int64)
    found = Everybody(named, orders, alive, torn, member_of, shared.known.ids, shared.past, ends, lost, complete)
    return AtTheEnd(members, found, list(audited.of_losses(found)), _all_doubts(pieces, audited.loss_doubts(found)))


def _joined(all_: list[States]) -> States:
    """The states of all pieces, one after the other."""
    before, moved = np.zeros(2, np.int64), []
    for s in all_:
        moved.append(s._replace(first=s.first + before[0], at=s.at + before[1]))
        before = before + s.used
    return States(*(np.concatenate(column) for column in zip(*moved, strict=True)))._replace(used=before)


def _all_doubts(pieces: list[Ended], count: Counter[tuple[str, str]]) -> list[Doubt]:
    """The doubts of all pieces and of agreement, once for each absent member."""
    for doubt in (doubt for piece in pieces for doubt in piece.doubts):
        count[doubt.member, doubt.why] += doubt.count
    return [Doubt(member, why, n) for (member, why), n in sorted(count.items())]
