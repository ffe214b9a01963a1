"""Small histories of our own, and where recorded ones are."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random
from typing import Any

from tests.audit.history.reference import Reference
from whence.audit.history import History, HistoryReport, Op, Transaction
from whence.audit.history.formats import read_text
from whence.audit.history.model import Status, settle
from whence.audit.history.save import certificate
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
    return read_text(Path("test.txt"), "\n".join(text.split()).encode())


def generated(
    rng: Random, txns: int = 6, sessions: int = 3, keys: int = 3, ops: int = 3, single: bool = False,
    repair: bool = False,
) -> History:  # fmt: skip
    """A random history: most reads return what somebody wrote, some the initial value, a few nonsense.

    `repair`: reads return the last write recorded before them, so that most levels hold.
    """
    made = [Transaction(str(rng.randrange(sessions)), str(n)) for n in range(rng.randint(1, txns))]
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
    last: dict[Any, Any] = {}
    for n, txn in enumerate(made):
        own: dict[Any, Any] = {}
        txn.status = Status.ABORTED if rng.random() < 0.03 else Status.COMMITTED
        txn.recorded = n if repair else 0
        for i, op in enumerate(txn.ops):
            if op.write:
                own[op.key] = op.value
                continue
            if repair:
                seen = own.get(op.key, last.get(op.key))
            elif op.key in own and rng.random() < 0.97:
                seen = own[op.key]
            else:
                seen = rng.choice([None, *writes.get(op.key, []), *writes.get(op.key, [])])
                seen = 999 if rng.random() < 0.01 else seen
            txn.ops[i] = op._replace(value=seen)
        last |= own if txn.status is Status.COMMITTED else {}
    return settle("generated", made)


def generated_lists(rng: Random, txns: int = 6, sessions: int = 3, keys: int = 2, ops: int = 3) -> History:
    """A random history of lists: transactions one after the other, each from some prefix of them; a few lists are
    made up."""
    made: list[Transaction] = []
    lists: list[dict[Any, tuple[Any, ...]]] = [{}]
    value = 0
    stale, wrong = rng.choice((0.0, 0.1, 0.5)), rng.choice((0.0, 0.05, 0.3))
    for n in range(rng.randint(1, txns)):
        seen = rng.choice(lists) if rng.random() < stale else lists[-1]
        own: dict[Any, tuple[Any, ...]] = {}
        txn = Transaction(str(rng.randrange(sessions)), str(n), recorded=n)
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


def judged(found: History, report: HistoryReport) -> None:
    """Every "holds" goes through the verifier, and every finding through the reference."""
    proof = certificate(report)
    if proof is not None:
        assert verify(found.rows(), proof["order"], proof["level"]) is None
    elif report.levels.get("RC"):
        raise AssertionError("RC holds without a certificate")
    reference = Reference(found) if report.findings else None
    for each in report.findings:
        if reference and (each.edges or each.at is not None):
            reference.recheck(report.finding_dict(each))


def recorded(large: bool) -> list[dict[str, Any]]:
    """What is expected of each recorded history: of the large ones, or of the others."""
    assert DATA is not None
    expected: list[dict[str, Any]] = json.loads((DATA / "expected.json").read_text())
    assert len(expected) > 150
    return [each for each in expected if (each["ops"] > LARGE) is large]
