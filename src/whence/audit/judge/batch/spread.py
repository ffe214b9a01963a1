"""A run that is too large to be judged at once, in pieces: each has all rows of some members.

The pieces are `outlined` first, side by side. From the outlines of all of them it is rebuilt what each piece needs to
know of the others (`Shared`): the past of every event, and the states that members begin with. Then the pieces are
`judged`, side by side. What members lack, and who owned what, is found at the end, from the state that each one `Ended`
with.

Only the steps of some members matter to others: of those that publish, or give a state that somebody begins with. They
are found before (`scouted`), so that only their steps are in the outlines.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch import audited, kernel, outline, owners
from whence.audit.judge.batch.audited import Audited, Everybody, doubts
from whence.audit.judge.batch.coding import Needed, code, codes, end_of, picked
from whence.audit.judge.batch.doubts import why
from whence.audit.judge.batch.outline import Head, Notes, Rebuilding, Shared
from whence.audit.judge.batch.rated import Sample, sample
from whence.audit.judge.batch.schemas import SCHEMAS
from whence.audit.judge.batch.verdicts import States, losses
from whence.audit.judge.findings import Doubt, Finding


class Scouted(NamedTuple):
    """What some rows tell of who depends on whom."""

    publishers: set[str]
    gave: set[tuple[str, str]]
    """(token, member that took the state)."""
    tokens: set[str]
    """Tokens that somebody begins with."""
    ended: set[str]
    """Members whose state at their end another one continues from."""


def scouted(table: pa.Table) -> Scouted:
    """Scout rows with the columns member, kind, reason, peer and token."""
    kind, kinds = codes(table["kind"])
    member, names = codes(table["member"])
    place = {name: k for k, name in enumerate(kinds.to_pylist())}
    publishing = np.unique(member[kind == place.get("publish", -1)])
    found = Scouted({str(names[m]) for m in publishing.tolist()}, set(), set(), set())
    special = np.flatnonzero(np.isin(kind, [place[k] for k in ("join", "snapshot") if k in place]))
    for row in picked(table.select(["member", "kind", "reason", "peer", "token"]), special):
        if row["kind"] == "snapshot" and row["token"] is not None:
            found.gave.add((row["token"], row["member"]))
        elif row["token"] is not None and row["reason"] != "genesis":
            found.tokens.add(row["token"])
        elif row["reason"] == "checkpoint" and row["peer"] not in (None, row["member"]):
            found.ended.add(row["peer"])
    return found


class Plan(NamedTuple):
    """Of a run, for the outlines of its pieces."""

    followed: set[str]
    """Members whose steps others depend on."""
    needed: Needed


def to_follow(parts: list[Scouted]) -> Plan:
    """What all rows of a run tell."""
    used = set[str]().union(*(part.tokens for part in parts))
    ended = set[str]().union(*(part.ended for part in parts))
    given = {(token, member) for part in parts for token, member in part.gave if token in used}
    followed = ended.union((member for _, member in given), *(part.publishers for part in parts))
    tokens = [*sorted({token for token, _ in given}), *map(end_of, sorted(ended))]
    return Plan(followed, Needed(tokens, sorted(ended)))


def outlined(table: pa.Table, plan: Plan, complete: bool = False) -> tuple[Head, Notes]:
    """The outline of a piece. `complete`: as of `coding.code`."""
    return outline.outlined(code(table, needed=plan.needed, complete=complete), plan.followed)


def rebuilding(heads: list[Head], plan: Plan, complete: bool = False) -> Rebuilding:
    """Begin to put outlines together: with the heads of all pieces."""
    return Rebuilding(heads, plan.needed, complete)


def judged(table: pa.Table, shared: Shared, complete: bool = False) -> Audited:
    """Judge a piece. `shared`: with whole vectors (`outline.with_vectors`), or slower."""
    coded = code(table, known=shared.known, complete=complete)
    early = np.zeros(len(coded.lseq), np.uint8)
    noted = outline.noted(coded.steps) if shared.early else early
    for m in np.flatnonzero(audited.there(coded)).tolist() if shared.early or shared.unmet else ():
        name, first, end = str(coded.members[m]), int(coded.steps.begin[m]), int(coded.steps.begin[m + 1])
        if name in shared.early:
            early[first + np.flatnonzero(noted[first:end])[shared.early[name]]] = 1
        if name in shared.unmet:
            joins = coded.steps.what[first:end][coded.steps.kind[first:end] == kernel.JOIN]
            coded.joins.token[joins[shared.unmet[name]]] = -1
    return audited.apart(coded, shared.past, early, shared.taken)


class Ended(NamedTuple):
    """What became of the members of a piece."""

    members: pa.Table
    """Rows of `members`, without losses."""
    ends: States
    elsewhere: list[str]
    """Members that another one continues."""
    doubts: list[Doubt]
    sample: Sample
    known_end: list[int]
    """Pairs of tenures (`Shared`) that do not overlap."""


def ended(a: Audited, shared: Shared, members: pa.Table) -> Ended:
    """`members`: the table of this piece."""
    coded = a.coded
    gone = [str(coded.members[m]) for m in np.flatnonzero(coded.superseded).tolist()] + coded.elsewhere
    ends = _taken(a.found.ends, np.flatnonzero(audited.there(coded)))
    return Ended(members, ends, gone, doubts(a), sample(a), owners.known_end(coded, shared.pairs))


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
    """What members lack, where that is wrong, and two owners of one ticket."""
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
    known_end = {k for piece in pieces for k in piece.known_end}
    vague = {name for name, unclear in zip(names, ends.vague.tolist(), strict=True) if unclear}
    of_owners = owners.wrong(shared.pairs, known_end, vague)
    count = audited.loss_doubts(found)
    for doubt in (finding.doubt for finding in of_owners if finding.doubt is not None):
        count[doubt, why(doubt, doubt in at, shared.known.torn, shared.known.closed, complete)] += 1
    wrong = [*audited.of_losses(found), *(finding for finding in of_owners if finding.doubt is None)]
    return AtTheEnd(members, found, wrong, _all_doubts(pieces, count))


def _joined(all_: list[States]) -> States:
    """The states of all pieces, one after the other."""
    before, moved = np.zeros(2, np.int64), []
    for s in all_:
        moved.append(s._replace(first=s.first + before[0], at=s.at + before[1]))
        before = before + s.used
    return States(*(np.concatenate(column) for column in zip(*moved, strict=True)))._replace(used=before)


def _all_doubts(pieces: list[Ended], count: Counter[tuple[str, str]]) -> list[Doubt]:
    """The doubts of all pieces and these, once for each absent member."""
    for doubt in (doubt for piece in pieces for doubt in piece.doubts):
        count[doubt.member, doubt.why] += doubt.count
    return [Doubt(member, why, n) for (member, why), n in sorted(count.items())]
