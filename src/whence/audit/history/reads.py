"""Read consistency: what every level demands of a read by itself, and who wrote what it saw.

A read after an own write of the key returns the last own write. Any other read is *external*: it returns the initial
value or the last write to the key of another committed transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from whence.audit.history.model import INIT, History, Key, Op, Txn, Value
from whence.audit.history.report import Finding

SHOWN_NOTES = 5
"""Repeated writes that are named one by one; the rest are counted."""


class Read(NamedTuple):
    """An external read that is consistent."""

    txn: int
    at: int
    """Which operation of the transaction."""
    key: Key
    writer: int
    """INIT for the initial value."""
    value: Value


class Write(NamedTuple):
    """Who wrote a value, and whether it is the last write of the transaction to the key."""

    txn: int
    final: bool


@dataclass(slots=True)
class Facts:
    """A history by number: transactions session by session, and everything the levels ask of the operations."""

    txns: list[Txn]
    session: list[int]
    """Of each transaction."""
    first: list[int]
    """Of each session: the number of its first transaction; one more entry for all."""
    reads: list[Read] = field(default_factory=list)
    """By transaction, then by operation."""
    writers: dict[Key, list[int]] = field(default_factory=dict)
    """Who writes a key, by number."""
    versions: list[tuple[int, int, Key]] = field(default_factory=list)
    """Lists: neighbours in the longest list of a key."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def numbered(history: History) -> Facts:
    """The transactions numbered session by session, without their reads."""
    facts = Facts(list(history.txns()), [], [0], notes=list(history.notes))
    for number, session in enumerate(history.sessions.values()):
        facts.session += [number] * len(session)
        facts.first.append(len(facts.session))
    for t, txn in enumerate(facts.txns):
        for key in dict.fromkeys(op.key for op in txn.ops if op.write):
            facts.writers.setdefault(key, []).append(t)
    return facts


def written(history: History, facts: Facts) -> tuple[dict[tuple[Key, Value], Write], set[tuple[Key, Value]]]:
    """(key, value) -> its writer, and what aborted transactions wrote. Repeated writes are noted."""
    found: dict[tuple[Key, Value], Write] = {}
    repeated = 0
    for t, txn in enumerate(facts.txns):
        last = {op.key: i for i, op in enumerate(txn.ops) if op.write}
        for i, op in enumerate(txn.ops):
            if not op.write or op.value is None:
                continue
            what = (op.key, op.value)
            final = last[op.key] == i or history.lists
            before = found.get(what)
            if before is None:
                found[what] = Write(t, final)
                continue
            if before.txn == t:
                found[what] = Write(t, final)
            repeated += 1
            if repeated <= SHOWN_NOTES:
                facts.notes.append(_repeated(history, facts, t, op, before.txn))
    if repeated > SHOWN_NOTES:
        facts.notes.append(f"{repeated - SHOWN_NOTES} more values were written twice")
    aborted = {(op.key, op.value) for txn in history.aborted for op in txn.ops if op.write}
    both = [what for what in aborted if what in found]
    if both:
        key, value = min(both, key=str)
        facts.notes.append(
            f"{len(both)} values were written by a committed and an aborted transaction, such as ({key}, {value}): "
            "the committed one is taken as the writer"
        )
    return found, aborted


def _repeated(history: History, facts: Facts, t: int, op: Op, taken: int) -> str:
    place = f"{history.file}, line {op.line}" if op.line else history.file
    return (
        f"{place}: ({op.key}, {op.value}) is written twice, by {_called(facts, taken)} and {_called(facts, t)}: reads "
        f"of it are ambiguous; {_called(facts, taken)} is taken as the writer"
    )


def _called(facts: Facts, t: int) -> str:
    return f"transaction {facts.txns[t].name} of session {facts.txns[t].session}"


def consistent(history: History) -> Facts:
    """The facts of a history of registers, with a finding for every read that is wrong by itself."""
    facts = numbered(history)
    writes, aborted = written(history, facts)
    for t, txn in enumerate(facts.txns):
        own: dict[Key, Value] = {}
        seen: dict[Key, Value] = {}
        for i, op in enumerate(txn.ops):
            if op.write:
                own[op.key] = op.value
                seen.pop(op.key, None)
                continue
            if op.key in seen and seen[op.key] != op.value:
                facts.findings.append(bad_read("NonRepeatableRead", t, txn, i, f"after it read {seen[op.key]}"))
            seen[op.key] = op.value
            if op.key in own and op.value == own[op.key]:
                continue
            wrong = _wrong(t, op, own, writes, aborted)
            if wrong is not None:
                facts.findings.append(bad_read(wrong[0], t, txn, i, wrong[1]))
            if wrong is None or wrong[0] == "IntermediateRead":  # its writer is known all the same
                writer = INIT if op.value is None else writes[op.key, op.value].txn
                facts.reads.append(Read(t, i, op.key, writer, op.value))
    return facts


def _wrong(
    t: int,
    op: Op,
    own: dict[Key, Value],
    writes: dict[tuple[Key, Value], Write],
    aborted: set[tuple[Key, Value]],
) -> tuple[str, str] | None:
    """The pattern of a read that does not return the last own write, and a remark; None: it is good."""
    writer = None if op.value is None else writes.get((op.key, op.value))
    if op.value is not None and writer is None:
        return ("AbortedRead", "") if (op.key, op.value) in aborted else ("ThinAirRead", "")
    if writer is not None and writer.txn == t:
        return ("NotMyLastWrite", f"after its own write of {own[op.key]}") if op.key in own else ("FutureRead", "")
    if op.key in own:
        return "NotMyOwnWrite", f"after its own write of {own[op.key]}"
    if writer is not None and not writer.final:
        return "IntermediateRead", "which its writer overwrote"
    return None


def bad_read(pattern: str, t: int, txn: Txn, at: int, remark: str) -> Finding:
    """A finding about one read by itself."""
    op = txn.ops[at]
    place = f" (line {op.line})" if op.line else ""
    detail = f"transaction {txn.name} of session {txn.session}: {op}{place}{' ' + remark if remark else ''}"
    return Finding(pattern, (t,), (op.key,), detail, at=at)
