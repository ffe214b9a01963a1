"""A run that is too large to be judged at once, in pieces: each has all rows of some members.

Others depend only on members that publish or give a state that somebody begins with. Which states these are is
`scouted` first. Then each piece is `outlined`: its steps that matter, as rows. From all outlines together it is
`rebuilt` what each piece needs to know of the others (`Shared`): the past of every event, and the states that members
begin with. Then the pieces are `judged`, side by side. What members lack, and who owned what, is found at the end, from
the states that members ended with (`PieceEnd`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from whence.audit.judge.batch import audited, kernel
from whence.audit.judge.batch.audited import Audited, Doubts, Found, Sample
from whence.audit.judge.batch.coding import END, READ, Coded, JoinSaid, KnownRun, code, codes, picked
from whence.audit.judge.batch.compiled import Ints, Longs
from whence.audit.judge.batch.tables import SCHEMAS
from whence.audit.judge.findings import why
from whence.audit.judge.promises import IMPOSSIBLE
from whence.audit.judge.tickets import Holding, Pair
from whence.audit.trace.schema import LOST

_NO_ROWS = pa.table({name: pa.array([], pa.int64() if name in ("lseq", "t_ns") else pa.string()) for name in READ[2:]})
_NO_LACKS = np.empty((0, len(kernel.LACKS)), np.int32)
_SEEN = "seen as"
"""A column of outlines: `lseq`, which is counted anew there."""


class Needed(NamedTuple):
    """What joins tell of the states that members begin with."""

    tokens: set[str]
    """Tokens that somebody begins with."""
    ended: set[str]
    """Members whose state at their end another one continues from."""
    superseded: set[str]
    """Members that another one continues, from whatever state."""


def scouted(table: pa.Table) -> Needed:
    """What the joins among these rows need. Columns: member, kind, reason, peer, token."""
    kind, kinds = codes(table["kind"])
    place = {name: k for k, name in enumerate(kinds.to_pylist())}
    found = Needed(set(), set(), set())
    joins = np.flatnonzero(kind == place.get("join", -2))
    for row in picked(table.select(["member", "reason", "peer", "token"]), joins):
        if JoinSaid(row["reason"], row["peer"], row["token"]).goes_on(row["member"]):
            found.superseded.add(row["peer"])
            if row["token"] is None:
                found.ended.add(row["peer"])
        if row["token"] is not None and row["reason"] != "genesis":
            found.tokens.add(row["token"])
    return found


def together(parts: Iterable[Needed]) -> Needed:
    """What all rows of a run tell."""
    every = list(parts)
    return Needed(*(set[str]().union(*(part[k] for part in every)) for k in range(3)))


class Outline(NamedTuple):
    """What others need to know of the members of a piece."""

    members: list[str]
    torn: list[str]
    """Members with missing steps."""
    closed: list[str]
    """Members that left or crashed."""
    notes: pa.Table
    """All joins, and the steps that others depend on: rows, by member and step."""
    tenures: list[Holding]


def outlined(table: pa.Table, needed: Needed, complete: bool = False) -> Outline:
    """The outline of a piece."""
    coded = code(table, complete=complete)
    names = [str(name) for name in coded.members.to_pylist()]
    follow = np.array([name in needed.ended for name in names], bool)
    follow[coded.member_of] = True
    gives = np.flatnonzero((coded.steps.kind == kernel.SNAPSHOT) & (coded.row < table.num_rows))
    tokens = [row["token"] for row in picked(table.select(["token"]), coded.row[gives])]
    follow[coded.members_of(gives[[token in needed.tokens for token in tokens]])] = True

    kind, of = coded.steps.kind, np.repeat(np.arange(len(names)), np.diff(coded.steps.begin))
    kinds = (kernel.PUBLISH, kernel.DELIVER, kernel.SNAPSHOT, kernel.GONE)
    theirs = follow[of] & (np.isin(kind, kinds) | (coded.steps.torn == 1))
    kept = np.flatnonzero((theirs | (kind == kernel.JOIN)) & (coded.row < table.num_rows))
    of = of[kept]
    step = np.cumsum(1 + np.where(follow[of], coded.steps.torn[kept], 0))  # where steps are missing, one is
    first = np.searchsorted(of, of)
    step += np.where(follow[of], coded.steps.torn[kept[first]], 0) - step[first] if len(kept) else 0
    notes = table.select(["member", "t_ns", "kind", "event", "ticket", "reason", "peer", "order", "token"])
    taken: Any = coded.row[kept]
    notes = notes.take(pa.array(taken)).append_column("lseq", pa.array(step, pa.int64()))
    lost: Any = pa.array(kind[kept] == kernel.LOST)  # also by rows that contradict one another
    notes = notes.set_column(2, "kind", pc.if_else(lost, LOST, notes["kind"].cast(pa.string())))
    notes = notes.append_column(_SEEN, pa.array(coded.lseq[kept], pa.int64()))
    torn, closed = ([names[m] for m in np.flatnonzero(which).tolist()] for which in (coded.missing, coded.closed))
    return Outline(names, torn, closed, notes, [tenure for _, tenure in audited.tenures(coded)])


Steps = list[tuple[str, int]]
"""Members and their steps (`lseq`)."""


class Shared(NamedTuple):
    """What every piece needs to know to be judged."""

    known: KnownRun
    past: kernel.Cells
    """Of every event."""
    taken: kernel.States
    """The state under each token."""
    early: Steps
    """Deliveries and joins that waited in a circle; only in an impossible trace."""
    pairs: list[tuple[int, Pair]]
    """Tenures of one ticket that overlap, unless the later owner knew of the earlier one's end."""


def rebuilt(outlines: list[Outline], needed: Needed, complete: bool = False) -> tuple[Shared, list[Found]]:
    """What the outlines of all pieces together tell. Also gives what is wrong with steps that others depend on."""
    table = pa.concat_tables([outline.notes for outline in outlines], promote_options="default")
    coded = code(table, complete=complete)
    lseq = np.full(max([table.num_rows, *(coded.row + 1)]), END)
    lseq[: table.num_rows] = table[_SEEN].to_numpy()
    coded = coded._replace(lseq=lseq[coded.row])
    steps, joins, block = coded.steps, coded.joins, kernel.whole(coded.parts, coded.known, 0)
    todo, found = audited.to_follow(coded), kernel.blank(steps, joins, len(coded.members), len(coded.member_of))
    past = np.empty((block.events, block.high - block.low), kernel.cell(coded.known.base).dtype)
    taken = kernel.states(block.tokens, past.shape[1], past)
    kernel.rebuild(steps, joins, coded.known, block, todo, past, kernel.unborn(block, todo, past), taken, found)
    if block.tokens:
        waits = np.flatnonzero(steps.kind == kernel.JOIN)
        todo[coded.members_of(waits[joins.token[steps.what[waits]] >= 0])] = 1
        begin = kernel.states(int(todo.sum()), past.shape[1], past)
        _, taken = kernel.judge(steps, joins, coded.known, block, past, todo, begin, taken, found)
    names = [str(name) for name in coded.members.to_pylist()]
    known = KnownRun(
        ids=coded.events.take(coded.ids),
        base=coded.known.base,
        members=sorted(name for outline in outlines for name in outline.members),
        origins=[names[m] for m in coded.member_of.tolist()],
        tokens=coded.tokens,
        torn=[name for outline in outlines for name in outline.torn],
        closed=[name for outline in outlines for name in outline.closed],
        superseded=sorted(needed.superseded),
    )
    wrong = list(audited.of_steps(Audited(coded, found, _NO_LACKS, [])))
    early = [(one.member, one.step or 0) for _, one in wrong if one.rule == IMPOSSIBLE]
    pairs = audited.overlaps((0, tenure) for outline in outlines for tenure in outline.tenures)
    return Shared(known, past, taken, early, pairs), wrong


class JudgedPiece(NamedTuple):
    """A piece, and the states that its members ended with."""

    audited: Audited
    ends: kernel.States


def judged(table: pa.Table, shared: Shared, complete: bool = False) -> JudgedPiece:
    """Judge a piece."""
    coded = code(table, shared.known, complete=complete)
    steps, found = coded.steps, kernel.blank(coded.steps, coded.joins, len(coded.members), len(coded.member_of))
    for step in (coded.step(0, *at) for at in shared.early):
        if step >= 0 and steps.kind[step] == kernel.JOIN:
            coded.joins.token[steps.what[step]] = -1
        elif step >= 0:
            found.early[step] = 1
    block = kernel.whole(coded.parts, coded.known, 0)
    there, past = coded.there(), shared.past
    ends = kernel.states(int(there.sum()), past.shape[1], past)
    ends, _ = kernel.judge(steps, coded.joins, coded.known, block, past, there, ends, shared.taken, found)
    return JudgedPiece(Audited(coded, found, _NO_LACKS, []), ends)


class PieceEnd(NamedTuple):
    """What became of the members of a piece."""

    members: pa.Table
    """Rows of `members`, without losses."""
    who: Ints
    """Their numbers in `KnownRun`."""
    ends: kernel.States
    doubts: Doubts
    samples: dict[int, Sample]
    known_end: list[int]
    """Pairs of tenures (`Shared`) that do not overlap."""


def ended(piece: JudgedPiece, shared: Shared, members: pa.Table) -> PieceEnd:
    """`members`: the table of this piece."""
    a, ends = piece
    used = int(ends.used[0])
    ends = ends._replace(event=ends.event[:used], skipped=ends.skipped[:used], opener=ends.opener[:used])
    who = np.flatnonzero(a.coded.there()).astype(np.int32)
    known_end = audited.known_end(a.coded, shared.pairs)
    return PieceEnd(members, who, ends, audited.doubts(a), audited.samples(a), known_end)


class AtTheEnd(NamedTuple):
    """What all pieces together tell."""

    members: pa.Table
    """The table, with losses."""
    audited: Audited
    """All members, without their steps."""
    found: list[Found]
    """What members lack, where that is wrong, and two owners of one ticket."""
    doubts: Doubts
    """All of them."""
    samples: list[Sample]


def at_the_end(shared: Shared, pieces: list[PieceEnd], complete: bool = False) -> AtTheEnd:
    """Put the pieces together."""
    known = shared.known
    coded = code(_NO_ROWS, known, complete=complete)
    for piece in pieces:
        coded.alive[piece.who] = piece.members["alive"].to_numpy(zero_copy_only=False)
        coded.missing[piece.who] = piece.members["missing"].to_numpy()
        for m, order in zip(piece.who.tolist(), piece.members["order"].to_pylist(), strict=True):
            coded.order[m] = str(order)
    found, lacks = _losses(coded, pieces)
    every = Audited(coded, found, lacks, [])
    vague = {(0, known.members[m]) for m in np.flatnonzero(found.vague).tolist()}
    known_end = {k for piece in pieces for k in piece.known_end}
    of_owners = list(audited.overlapped(shared.pairs, known_end, vague))
    count: Doubts = sum((piece.doubts for piece in pieces), audited.loss_doubts(every))
    torn, closed, here = set(known.torn), set(known.closed), set(known.members)
    for doubt in (finding.doubt for _, finding in of_owners if finding.doubt is not None):
        count[0, doubt, why(doubt in here, doubt in torn, complete or doubt in closed)] += 1
    wrong = [*audited.of_losses(every), *(one for one in of_owners if one[1].doubt is None)]
    members = pa.concat_tables([_with_losses(piece, found.lost) for piece in pieces]).sort_by("member")
    return AtTheEnd(members, every, wrong, count, [one for piece in pieces for one in piece.samples.values()])


def _losses(coded: Coded, pieces: list[PieceEnd]) -> tuple[kernel.Outcome, Ints]:
    events, member_of, alive, origins = coded.known, coded.member_of, coded.alive, len(coded.member_of)
    found = kernel.blank(coded.steps, coded.joins, len(coded.members), origins)
    some = np.zeros(len(events.origin), np.uint8)
    promised = audited.agreement(coded.order)
    for piece in pieces:
        kernel.had(events, 0, origins, piece.who, piece.ends, alive, some)
    others = (alive, coded.superseded, member_of, promised, some, found)
    return found, np.concatenate([kernel.lacking(events, 0, origins, one.who, one.ends, *others) for one in pieces])


def _with_losses(piece: PieceEnd, lost: Longs) -> pa.Table:
    table = piece.members
    for k, name in enumerate(("gaps", "lost", "lost_of_live", "disagreements")):
        place = table.schema.get_field_index(name)
        table = table.set_column(place, SCHEMAS["members"].field(name), pa.array(lost[piece.who, k]))
    return table
