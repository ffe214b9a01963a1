"""Small histories of our own, and where recorded ones are."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

from whence.audit.history import History, Op, Report, Txn
from whence.audit.history.model import Status, settle
from whence.audit.history.plain import read_text
from whence.audit.history.recheck import recheck
from whence.audit.history.save import certificate, rows
from whence.audit.history.verify import verify

DATA = Path(os.environ["WHENCE_DATA"]) / "histories" if "WHENCE_DATA" in os.environ else None
WHY_SKIPPED = "recorded histories are read from the folder histories of WHENCE_DATA, which is not set"
LARGE = 4_000
"""Operations."""

PATTERNS = {
    "ThinAirRead": ("r(1,9,0,0)", "RC"),
    "AbortedRead": ("w(1,9,0,-1) r(1,9,1,0)", "RC"),
    "FutureRead": ("r(1,9,0,0) w(1,9,0,0)", "RC"),
    "NotMyOwnWrite": ("w(1,1,0,0) w(1,2,1,1) r(1,1,1,1)", "RC"),
    "NotMyLastWrite": ("w(1,1,0,0) w(1,2,0,0) r(1,1,0,0)", "RC"),
    "IntermediateRead": ("w(1,1,0,0) w(1,2,0,0) r(1,1,1,1)", "RC"),
    "CyclicCO": ("r(1,1,0,0) w(2,1,0,0) r(2,1,1,1) w(1,1,1,2)", "RC"),
    "NonMonoReadCO": ("w(1,1,0,0) w(1,2,0,1) w(2,2,0,1) r(2,2,1,2) r(1,1,1,2)", "RC"),
    "NonMonoReadAO": (
        "w(1,1,0,0) w(2,1,0,0) w(1,2,1,1) w(2,2,1,1) r(2,2,2,2) r(1,1,2,2) r(2,1,3,3) r(1,2,3,3)",
        "RC",
    ),
    "NonRepeatableRead": ("w(1,1,0,0) w(1,2,1,1) r(1,1,2,2) r(1,2,2,2)", "RA"),
    "FracturedReadCO": ("w(1,1,0,0) w(1,2,0,1) w(2,2,0,1) r(1,1,1,2) r(2,2,1,2)", "RA"),
    "FracturedReadAO": ("w(1,1,0,0) w(2,1,0,0) w(1,2,1,1) w(2,2,1,1) r(1,1,2,2) r(2,2,2,2)", "RA"),
    "COConflictAO": ("w(1,1,0,0) w(1,2,0,1) w(2,2,0,1) r(2,2,1,2) r(1,1,1,3)", "TCC"),
    "ConflictAO": ("w(1,1,0,0) w(1,2,1,1) r(1,1,2,2) r(1,2,2,3) r(1,2,3,4) r(1,1,3,5)", "TCC"),
}
"""Pattern -> its smallest example, and the weakest level that forbids it."""


def history(text: str) -> History:
    """From `w(1,7,0,0) r(1,7,1,1)`: key, value, session, transaction."""
    return read_text(Path("test.txt"), "\n".join(text.split()))


def generated(
    rng: Random, txns: int = 6, sessions: int = 3, keys: int = 3, ops: int = 3, single: bool = False
) -> History:
    """A random history: most reads return what somebody wrote, some the initial value, a few nonsense."""
    made = [Txn(str(rng.randrange(sessions)), str(n)) for n in range(rng.randint(1, txns))]
    value = 0
    for txn in made:
        for _ in range(1 if single else rng.randint(1, ops)):
            write = rng.random() < 0.5
            value += 1
            txn.ops.append(Op(write, rng.randrange(keys), value if write else None))
    writes: dict[Any, list[Any]] = {}
    for txn in made:
        for op in txn.ops:
            if op.write:
                writes.setdefault(op.key, []).append(op.value)
    for txn in made:
        own: dict[Any, Any] = {}
        for i, op in enumerate(txn.ops):
            if op.write:
                own[op.key] = op.value
                continue
            if op.key in own and rng.random() < 0.97:
                seen = own[op.key]
            else:
                seen = rng.choice([None, *writes.get(op.key, []), *writes.get(op.key, [])])
                seen = 999 if rng.random() < 0.01 else seen
            txn.ops[i] = op._replace(value=seen)
    for txn in made:
        if rng.random() < 0.03:
            txn.status = Status.ABORTED
    return settle("generated", made)


def generated_lists(rng: Random, txns: int = 6, sessions: int = 3, keys: int = 2, ops: int = 3) -> History:
    """A random history of lists: transactions one after the other, each from some prefix of them; a few lists are
    made up."""
    made: list[Txn] = []
    lists: list[dict[Any, tuple[Any, ...]]] = [{}]
    value = 0
    stale, wrong = rng.choice((0.0, 0.1, 0.5)), rng.choice((0.0, 0.05, 0.3))
    for n in range(rng.randint(1, txns)):
        seen = rng.choice(lists) if rng.random() < stale else lists[-1]
        own: dict[Any, tuple[Any, ...]] = {}
        txn = Txn(str(rng.randrange(sessions)), str(n), recorded=n)
        for _ in range(rng.randint(1, ops)):
            key = rng.randrange(keys)
            if rng.random() < 0.5:
                value += 1
                own[key] = (*own.get(key, ()), value)
                txn.ops.append(Op(True, key, value))
                continue
            shown = [*seen.get(key, ()), *own.get(key, ())]
            if rng.random() < wrong:
                shown += [rng.randint(1, value + 1) for _ in range(rng.randrange(3))]
                rng.shuffle(shown)
                del shown[rng.randint(0, len(shown)) :]
            txn.ops.append(Op(False, key, tuple(shown)))
        if rng.random() < 0.1:
            txn.status = Status.ABORTED
        else:
            lists.append({**lists[-1], **{key: (*lists[-1].get(key, ()), *more) for key, more in own.items()}})
        made.append(txn)
    return settle("generated", made, lists=True)


def repaired(history: History) -> None:
    """Reads return the last write recorded before them, so that most levels hold."""
    last: dict[object, object] = {}
    for txn in sorted(history.txns(), key=lambda txn: int(txn.name)):
        own: dict[object, object] = {}
        for i, op in enumerate(txn.ops):
            if op.write:
                own[op.key] = op.value
            else:
                txn.ops[i] = op._replace(value=own.get(op.key, last.get(op.key)))  # type: ignore[arg-type]
        last |= own
        txn.recorded = int(txn.name)


def brute(found: History, level: str) -> bool:
    """Whether a level holds, from its definition: by trying every commit order."""
    txns = list(found.txns())
    place = {id(txn): (txn.session, i) for s in found.sessions.values() for i, txn in enumerate(s)}
    total = range(len(txns))
    last = {(t, op.key): op.value for t in total for op in txns[t].ops if op.write}
    so = {(a, b) for a in total for b in total if _so(place[id(txns[a])], place[id(txns[b])])}
    reads: list[tuple[int, int, Any, int]] = []
    for t in total:
        own: dict[Any, Any] = {}
        for i, op in enumerate(txns[t].ops):
            if op.write:
                own[op.key] = op.value
            elif op.key in own:
                if op.value != own[op.key]:
                    return False
            else:
                writers = [w for w in total if w != t and op.value is not None and last.get((w, op.key)) == op.value]
                if op.value is not None and not writers:
                    return False
                reads.append((t, i, op.key, writers[0] if writers else -1))
    wr = {(w, t) for t, _, _, w in reads if w >= 0}
    hb = so | wr
    while more := {(a, d) for a, b in hb for c, d in hb if b == c} - hb:
        hb |= more
    seen = {"RA": so | wr, "TCC": hb}.get(level, set())
    before = []
    for t3, i, key, t1 in reads:
        for t2 in total:
            if t2 in (t1, t3) or (t2, key) not in last:
                continue
            early = any(t == t3 and j < i and w == t2 for t, j, _, w in reads)
            if (t2, t3) in seen or (level == "RC" and early):
                before.append((t2, t1))
    needed = so | wr | set(before)
    return all(other != -1 for _, other in needed) and _orders(set(total), needed)  # nothing commits before init


def _so(one: tuple[str, int], other: tuple[str, int]) -> bool:
    return one[0] == other[0] and one[1] < other[1]


def _orders(rest: set[int], needed: set[tuple[int, int]]) -> bool:
    """Try every order of the rest: each next one must have nothing that is needed before it among the others."""
    if not rest:
        return True
    free = [t for t in rest if not any(one in rest for one, other in needed if other == t)]
    return any(_orders(rest - {t}, needed) for t in free)


def judged(found: History, report: Report) -> None:
    """Every "holds" goes through the verifier, every cycle and bad read through the re-checker."""
    those = list(rows(found))
    proof = certificate(report)
    if proof is not None:
        assert verify(those, proof["order"], proof["level"]) is None
    elif report.levels.get("RC"):
        raise AssertionError("RC holds without a certificate")
    for each in report.findings:
        if each.edges or each.at is not None:
            told = report.finding_dict(each)
            assert recheck(_plain(those), told) is None, told


def _plain(those: Iterable[list[Any]]) -> list[list[Any]]:
    return list(those)


def recorded(large: bool) -> list[dict[str, Any]]:
    """What is expected of each recorded history: of the large ones, or of the others."""
    assert DATA is not None
    expected: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
    assert len(expected) > 150
    return [each for each in expected if (each["ops"] > LARGE) is large]
