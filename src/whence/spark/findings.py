"""One run of one cluster audited: from coded rows to the rows of the tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from whence.spark import judge as j
from whence.spark import kernel
from whence.spark.coding import END, Coded, code
from whence.spark.compiled import Bytes, Ints, Longs, Small, compiled
from whence.spark.judge import INVERTED, UNKNOWN
from whence.spark.owners import two_owners
from whence.spark.tables import arrow_schema

VERDICTS: Final = ("in order", "inverted", "over a gap", "after a gap", "duplicate", "unknown")
"""As the kernel's, which tells two kinds of `inverted` apart."""

BREAKS: Final[dict[str, tuple[int, ...]]] = {
    "unordered": (j.UNKNOWN,),
    "fifo": (j.UNKNOWN, j.DUPLICATE, j.FIFO_INVERTED),
    "causal": (j.UNKNOWN, j.DUPLICATE, j.INVERTED, j.FIFO_INVERTED),
    "reliable": (j.UNKNOWN, j.DUPLICATE, j.INVERTED, j.FIFO_INVERTED, j.OVER_GAP),
    "probabilistic": (j.UNKNOWN, j.DUPLICATE),
}
"""What each order forbids. Optimistic causal order may lose, never invert; the probabilistic one may invert, rarely. A
reliable member also has to get all that another live member has ("agreement")."""

RULES: Final = ("causal", "fifo", "integrity", "gap", "agreement", "reused id", "two owners")


class Audited(NamedTuple):
    """A run of a cluster with all that was found in it."""

    coded: Coded
    past: kernel.Past
    found: j.Found
    losses: j.Losses
    circles: int
    """Times that a member waited for what waited for it: a false trace."""


def followed(coded: Coded) -> Bytes:
    """The members whose steps others depend on: they publish, or give a state that is used."""
    out = np.zeros(len(coded.members), np.uint8)
    out[coded.member_of] = 1
    given = np.flatnonzero((coded.steps.kind == kernel.SNAPSHOT) & (coded.steps.what >= 0))
    out[np.searchsorted(coded.steps.begin, given, side="right") - 1] = 1
    return out


def audited(coded: Coded, room: int = kernel.DENSE) -> Audited:
    """Rebuild and judge. `room`: see `kernel.rebuild`."""
    tokens, origins = len(coded.tokens), len(coded.base) - 1
    past, early, circles = kernel.rebuild(coded.steps, coded.joins, tokens, coded.base, followed(coded), room)
    everybody = np.ones(len(coded.members), np.uint8)
    found = j.judge(coded.steps, coded.joins, past, early, everybody, j.states(tokens, origins))
    losses = j.losses(past, found.ends, coded.alive, coded.superseded, coded.alive[coded.member_of])
    return Audited(coded, past, found, losses, circles)


def _array(values: Any, mask: Any = None) -> Any:
    """Arrow's stubs take every NumPy array for one of booleans."""
    return pa.array(values, mask=mask)


def warm() -> None:
    """Have the kernel compiled, or loaded from where it was kept: the first time takes many seconds. Workers on this
    machine find it then."""
    rows = [("join", None), ("publish", "0:1.0.1:1@a#1"), ("deliver", "0:1.0.1:1@a#1")]
    texts: dict[str, Any] = dict.fromkeys(("reason", "peer", "order", "token"), pa.nulls(3, pa.string()))
    table = pa.table(
        {
            "member": ["a#1"] * 3,
            "lseq": [0, 1, 2],
            "t_ns": [0, 1, 2],
            "kind": [kind for kind, _ in rows],
            "event": [event for _, event in rows],
            "ticket": pa.nulls(3, pa.int32()),
            **texts,
        }
    )
    audited(code(table))


def coded_texts(values: Ints, names: pa.Array[Any]) -> Any:
    """Numbers as a dictionary column; negative ones are null."""
    gaps = len(values) and values.min() < 0
    return pa.DictionaryArray.from_arrays(_array(values, values < 0 if gaps else None), names, safe=False)


def _constants(n: int, *values: str) -> list[Any]:
    """A column for each value, which is the same n times."""
    zeros = _array(np.zeros(n, np.int32))
    return [pa.DictionaryArray.from_arrays(zeros, pa.array([value]), safe=False) for value in values]


def _sparse(values: NDArray[Any], at: Longs, n: int) -> Any:
    """A column of n with these values at these places, null elsewhere."""
    full: Any = np.zeros(n, values.dtype)
    there = np.zeros(n, bool)
    full[at], there[at] = values, True
    bits: Any = np.packbits(there, bitorder="little")
    return pa.Array.from_buffers(
        pa.from_numpy_dtype(values.dtype), n, [pa.py_buffer(bits), pa.py_buffer(full)], n - len(at)
    )


def members_of(coded: Coded, rows: Longs) -> Ints:
    """The members of these rows."""
    return (np.searchsorted(coded.steps.begin, rows, side="right") - 1).astype(np.int32)


def broken(a: Audited, rows: NDArray[np.int64], member: Ints) -> NDArray[np.bool_]:
    """Which of these deliveries break what their member's order promises. That nobody published an event is no reproach
    where steps of its origin are missing."""
    coded, verdict = a.coded, a.found.verdict[rows]
    out = np.zeros(len(rows), bool)
    suspects = np.flatnonzero(verdict != j.IN_ORDER)
    forbids = np.zeros((len(coded.members), 7), bool)
    for m, order in enumerate(coded.order):
        forbids[m, list(BREAKS.get(order, BREAKS["unordered"]))] = True
    out[suspects] = forbids[member[suspects], verdict[suspects]]
    if coded.torn:
        torn = set(coded.torn)
        for k in np.flatnonzero(verdict == j.UNKNOWN).tolist():
            out[k] &= claimed_origin(_id(coded, int(rows[k]))) not in torn
    return out


def claimed_origin(event: str | None) -> str | None:
    """Whose event this is, by its id."""
    owner = (event or "").partition("@")[2]
    return owner or None


@compiled
def _columns(
    begin: Longs, verdict: Small, what: Ints, event: Ints, lseq: Longs, past_origin: Ints, base: Longs, member_of: Ints
) -> tuple[Longs, Ints, Ints, Longs, Ints, Longs, Ints]:
    """Of every delivery: row, member, id, `lseq`, origin's member, seq, and which verdict."""
    n = 0
    for r in range(len(verdict)):
        n += verdict[r] >= 0
    row, member, ids, steps = np.empty(n, np.int64), np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int64)
    origin, seq, name = np.full(n, -1, np.int32), np.zeros(n, np.int64), np.empty(n, np.int32)
    k = 0
    for m in range(len(begin) - 1):
        for r in range(begin[m], begin[m + 1]):
            v = verdict[r]
            if v >= 0:
                row[k], member[k], ids[k], steps[k] = r, m, event[r], lseq[r]
                name[k] = v - 1 if v > INVERTED else v
                if v != UNKNOWN:
                    o = past_origin[what[r]]
                    origin[k] = member_of[o]
                    seq[k] = what[r] - base[o] + 1
                k += 1
    return row, member, ids, steps, origin, seq, name


def verdicts(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `verdicts`, text as dictionaries."""
    coded, past, found = a.coded, a.past, a.found
    rows, member, event, lseq, origin, seq, name = _columns(
        coded.steps.begin, found.verdict, coded.steps.what, coded.event, coded.lseq, past.origin, past.base,
        coded.member_of,
    )  # fmt: skip
    names, no_seq = coded.members, None
    if len(seq) and seq.min() == 0:  # an event that nobody published, of a member that may have no row here
        unknown = no_seq = seq == 0
        claimed = [claimed_origin(_id(coded, r)) for r in rows[unknown].tolist()]
        extra = sorted({c for c in claimed if c is not None})
        at = {name: len(names) + k for k, name in enumerate(extra)}
        origin[unknown] = [at.get(c or "", -1) for c in claimed]
        names = pa.concat_arrays([names, pa.array(extra, pa.string())])
    orders = sorted(set(coded.order))
    order_of = np.array([orders.index(o) for o in coded.order] or [0], np.int32)
    suspects = np.flatnonzero(name)
    constant = _constants(len(rows), run, cluster, *orders[:1])
    wrong = np.zeros(len(rows), bool)
    wrong[suspects] = broken(a, rows[suspects], member[suspects])
    columns = [
        *constant[:2],
        coded_texts(member, coded.members),
        _array(lseq),
        coded_texts(event, coded.events),
        coded_texts(origin, names),
        _array(seq, no_seq),
        coded_texts(name, pa.array(VERDICTS)),
        coded_texts(order_of[member], pa.array(orders)) if len(orders) > 1 else constant[2],
        *_causes(a, suspects, found.cause[rows[suspects]], len(rows)),
        _array(wrong),
    ]
    return pa.Table.from_arrays(columns, names=arrow_schema("verdicts").names)


def _causes(a: Audited, rows: Longs, cause: Ints, n: int) -> list[Any]:
    """Origin, seq and id of the events that these of n verdicts are wrong with respect to; the others are in order."""
    coded, past = a.coded, a.past
    rows, cause = rows[cause >= 0], cause[cause >= 0]
    if not len(cause):
        texts = pa.nulls(n, pa.dictionary(pa.int32(), pa.string()))
        return [texts, pa.nulls(n, pa.int64()), texts]
    origin = past.origin[cause]
    ids, which = np.unique(coded.ids[cause], return_inverse=True)  # all would be written, with each row group
    return [
        pa.DictionaryArray.from_arrays(_sparse(coded.member_of[origin], rows, n), coded.members),
        _sparse(cause - past.base[origin] + 1, rows, n),
        pa.DictionaryArray.from_arrays(_sparse(which.astype(np.int32), rows, n), coded.events.take(ids)),
    ]


def _origin_member(a: Audited, e: Ints) -> Ints:
    """Events -> the member that published each; -1 for -1."""
    if not len(a.past.origin):
        return np.full(len(e), -1, np.int32)
    out: Ints = np.where(e >= 0, a.coded.member_of[a.past.origin[e]], np.int32(-1))
    return out


def _seqs(past: kernel.Past, e: Ints) -> Any:
    if not len(past.origin) or not (e >= 0).any():
        return pa.nulls(len(e), pa.int64())
    return pa.array(e - past.base[past.origin[e]] + 1, mask=e < 0)


def past_table(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `past`: whole vectors, from the news."""
    coded, past = a.coded, a.past
    origins, events = len(past.base) - 1, len(past.origin)
    vectors = kernel.vectors(past).astype(np.int64)
    offsets = _array(np.arange(0, (events + 1) * origins, max(origins, 1), dtype=np.int32)[: events + 1])
    everything = np.arange(events, dtype=np.int32)
    columns = [
        *_constants(events, run, cluster),
        coded_texts(coded.ids, coded.events),
        coded_texts(_origin_member(a, everything), coded.members),
        _seqs(past, everything),
        pa.ListArray.from_arrays(offsets, _array(vectors.ravel())),
    ]
    return pa.Table.from_arrays(columns, names=arrow_schema("past").names).cast(arrow_schema("past"))


def origins_table(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `origins`: which entry of a vector is whose."""
    n = len(a.coded.member_of)
    columns = [
        *_constants(n, run, cluster),
        pa.array(np.arange(n, dtype=np.int32)),
        coded_texts(a.coded.member_of, a.coded.members),
    ]
    return pa.Table.from_arrays(columns, names=arrow_schema("origins").names).cast(arrow_schema("origins"))


@compiled
def _counts(begin: Longs, lseq: Longs, verdict: Small, end: int) -> tuple[Longs, Longs]:
    """Steps, and deliveries by verdict, of every member."""
    members = len(begin) - 1
    steps, count = np.zeros(members, np.int64), np.zeros((members, 7), np.int64)
    for m in range(members):
        for r in range(begin[m], begin[m + 1]):
            steps[m] += lseq[r] < end
            if verdict[r] >= 0:
                count[m, verdict[r]] += 1
    return steps, count


def members(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `members`: counts."""
    coded, losses = a.coded, a.losses
    n = len(coded.members)
    steps, count = _counts(coded.steps.begin, coded.lseq, a.found.verdict, END)
    inverted = count[:, j.INVERTED] + count[:, j.FIFO_INVERTED]
    columns = [
        *_constants(n, run, cluster),
        coded.members,
        pa.array(coded.order, pa.string()),
        _array(coded.alive == 1),
        *(pa.array(c.astype(np.int64)) for c in (steps, coded.missing, count.sum(1), count[:, 0], inverted)),
        *(
            pa.array(count[:, v].astype(np.int64))
            for v in (j.FIFO_INVERTED, j.OVER_GAP, j.AFTER_GAP, j.DUPLICATE, j.UNKNOWN)
        ),
        *(pa.array(c) for c in (losses.gaps, losses.lost, losses.lost_of_live, losses.disagreed)),
    ]
    table = pa.Table.from_arrays(columns, names=arrow_schema("members").names).cast(arrow_schema("members"))
    return table.filter(_array(steps > 0))


# -- in words


class Violation(NamedTuple):
    """A row of `violations` without run and cluster."""

    rule: str
    member: str
    lseq: int | None
    event: str | None
    detail: str
    witness: list[str]


def violations(a: Audited, run: str, cluster: str) -> pa.Table:
    """The table `violations`: a row for each promise that was broken."""
    agreement = of_agreement(_everybody(a)) if len(a.losses.member) else ()
    return violations_table([*_of_deliveries(a), *agreement, *_of_ids(a), *_of_owners(a)], run, cluster)


def violations_table(rows: list[Violation], run: str, cluster: str) -> pa.Table:
    """The rows as the table."""
    columns: dict[str, Any] = {"run": [run] * len(rows), "cluster": [cluster] * len(rows)}
    for at, name in enumerate(Violation._fields):
        columns[name] = [row[at] for row in rows]
    return pa.Table.from_pydict(columns, schema=arrow_schema("violations"))


def _id(coded: Coded, row: int) -> str | None:
    code = int(coded.event[row])
    return None if code < 0 else str(coded.events[code])


def event_id(a: Audited, e: int) -> str:
    """The id of event number e."""
    return str(a.coded.events[int(a.coded.ids[e])])


def name_of(a: Audited, e: int) -> str:
    """`0:1.0.1:3@m0#1 (m0#1's 3rd)`."""
    return _named(event_id(a, e), a.past, e, str(a.coded.members[int(a.coded.member_of[a.past.origin[e]])]))


def _named(event: str, past: kernel.Past, e: int, origin: str) -> str:
    seq = e - int(past.base[past.origin[e]]) + 1
    last = "th" if seq % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(seq % 10, "th")
    return f"{event} ({origin}'s {seq}{last})"


def _of_deliveries(a: Audited) -> Iterator[Violation]:
    coded = a.coded
    rows = np.flatnonzero(a.found.verdict > j.IN_ORDER)
    of = members_of(coded, rows)
    wrong = broken(a, rows, of)
    for row, m in zip(rows[wrong].tolist(), of[wrong].tolist(), strict=True):
        member, event = str(coded.members[m]), _id(coded, row)
        rule, detail, witness = _explained(a, row, member, event, coded.order[m])
        yield Violation(rule, member, int(coded.lseq[row]), event, detail, witness)


def _explained(a: Audited, row: int, member: str, event: str | None, order: str) -> tuple[str, str, list[str]]:
    e, cause, verdict = int(a.coded.steps.what[row]), int(a.found.cause[row]), int(a.found.verdict[row])
    if verdict == j.UNKNOWN:
        origin = claimed_origin(event)
        there = origin in a.coded.members.to_pylist()
        known = "" if there else f"; no row of {origin} is here (if its file is late, audit again with it)"
        return "integrity", f"{member} delivered {event}, which nobody has published{known}", [event] if event else []
    mine, other = name_of(a, e), name_of(a, cause)
    both = [event_id(a, cause), str(event)]
    if verdict == j.DUPLICATE:
        return "integrity", f"{member} delivered {mine} a second time", both[1:]
    if verdict == j.OVER_GAP:
        return "gap", f"{member} delivered {mine} without {other} before it", both
    knew = a.coded.members[int(a.coded.member_of[a.past.origin[cause]])]
    detail = f"{member} delivered {other} and then {mine}; but {knew} published the former with the latter in its past"
    return "fifo" if order == "fifo" else "causal", detail, both


class Everybody(NamedTuple):
    """All members of a run at its end."""

    members: pa.Array[Any]
    order: list[str]
    alive: Bytes
    member_of: Ints
    ids: pa.Array[Any]
    past: kernel.Past
    ends: j.States
    losses: j.Losses


def _everybody(a: Audited) -> Everybody:
    ids = a.coded.events.take(a.coded.ids)
    return Everybody(
        a.coded.members, a.coded.order, a.coded.alive, a.coded.member_of, ids, a.past, a.found.ends, a.losses
    )


def of_agreement(a: Everybody) -> Iterator[Violation]:
    """What a reliable member lacks, and another has."""
    ranges = zip(a.losses.member.tolist(), a.losses.first.tolist(), a.losses.last.tolist(), strict=True)
    for m, first, last in ranges:
        if a.order[m] != "reliable":
            continue
        has = _holder(a, first)
        event = str(a.ids[first])
        named = _named(event, a.past, first, str(a.members[int(a.member_of[a.past.origin[first]])]))
        more = f" nor the {last - first} after it" if last > first else ""
        whose = f"; {has} did" if has else "; its publisher is alive"
        detail = f"{a.members[m]} never delivered {named}{more}{whose}"
        yield Violation("agreement", str(a.members[m]), None, event, detail, [event])


def _holder(a: Everybody, e: int) -> str | None:
    """A live member that has delivered the event."""
    o = int(a.past.origin[e])
    have = np.flatnonzero((a.alive == 1) & (a.ends.X[:, o] > e - a.past.base[o]))
    for m in have.tolist():
        at = int(a.ends.at[m])
        if e not in a.ends.event[at : at + int(a.ends.size[m])]:
            return str(a.members[m])
    return None


def _of_ids(a: Audited) -> Iterator[Violation]:
    coded = a.coded
    for row, m in zip(coded.reused.tolist(), members_of(coded, coded.reused).tolist(), strict=True):
        event, member = str(_id(coded, row)), str(coded.members[m])
        detail = f"{member} published {event}, but the id {event.partition('@')[0]} was used before"
        yield Violation("reused id", member, int(coded.lseq[row]), event, detail, [event])


def _of_owners(a: Audited) -> Iterator[Violation]:
    coded = a.coded
    for earlier, later in two_owners(coded):
        name, other = str(coded.members[later.member]), str(coded.members[earlier.member])
        events = [str(_id(coded, r)) for r in (earlier.last, later.first) if r >= 0]
        detail = (
            f"{other} owned ticket {earlier.ticket} as {earlier.incarnation} from {earlier.start} to {earlier.end} ns, "
            f"and {name} as {later.incarnation} from {later.start} to {later.end} ns"
        )
        yield Violation("two owners", name, later.lseq, events[-1] if later.first >= 0 else None, detail, events)
