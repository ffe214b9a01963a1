"""Read consistency of lists (Jepsen's list-append): a read returns every append so far.

A list is a concatenation of whole transactions' appends, then the reader's own so far. It reads from the transaction of
its last element. All lists of a key are prefixes of the longest, whose neighbours are ordered (version order).
"""

from __future__ import annotations

from itertools import groupby, pairwise

from whence.audit.history.model import INIT, History, Key, Scalar, Value
from whence.audit.history.reads import Facts, Read, Write, bad_read, numbered, written

Lists = dict[Key, list[tuple[int, int, tuple[Scalar, ...]]]]
"""Key -> every list that was read of it, by which transaction and operation."""


def consistent_lists(history: History) -> Facts:
    """The facts of a history of lists, with a finding for every read that is wrong by itself."""
    facts = numbered(history)
    writes, aborted = written(history, facts)
    appends: dict[tuple[int, Key], list[Value]] = {}
    for t, txn in enumerate(facts.txns):
        for op in txn.ops:
            if op.write:
                appends.setdefault((t, op.key), []).append(op.value)
    seen: Lists = {}
    for t, txn in enumerate(facts.txns):
        own: dict[Key, list[Value]] = {}
        before: dict[Key, Value] = {}
        for i, op in enumerate(txn.ops):
            if op.write:
                own.setdefault(op.key, []).append(op.value)
                before.pop(op.key, None)
                continue
            assert isinstance(op.value, tuple)
            if before.get(op.key, op.value) != op.value:
                facts.findings.append(bad_read("NonRepeatableRead", t, txn, i, "after it read another list"))
            before[op.key] = op.value
            mine = own.get(op.key, [])
            wrong = _wrong_list(t, op.value, op.key, mine, writes, aborted, appends)
            if wrong is not None:
                facts.findings.append(bad_read(wrong[0], t, txn, i, wrong[1]))
            if wrong is None or wrong[0] != "FutureRead":
                seen.setdefault(op.key, []).append((t, i, op.value))
            if wrong is None and not mine:
                last = op.value[-1] if op.value else None
                facts.reads.append(Read(t, i, op.key, INIT if last is None else writes[op.key, last].txn, last))
    _order_versions(facts, seen, writes)
    return facts


def _wrong_list(
    t: int,
    value: tuple[Scalar, ...],
    key: Key,
    own: list[Value],
    writes: dict[tuple[Key, Value], Write],
    aborted: set[tuple[Key, Value]],
    appends: dict[tuple[int, Key], list[Value]],
) -> tuple[str, str] | None:
    for element in value:
        if (key, element) not in writes:
            return ("AbortedRead" if (key, element) in aborted else "ThinAirRead"), f"(element {element})"
        if writes[key, element].txn == t and element not in own:
            return "FutureRead", f"(element {element})"
    if len(set(value)) < len(value):
        return "DuplicateElement", ""
    others = value
    if own:
        if list(value[-len(own) :]) != own:
            mine = bool(value) and value[-1] in own
            return ("NotMyLastWrite", "") if mine else ("NotMyOwnWrite", f"after its own append of {own[-1]}")
        others = value[: -len(own)]
    for writer, part in groupby(others, key=lambda element: writes[key, element].txn):
        if list(part) != appends[writer, key]:
            return (
                "IntermediateRead",
                f"(the appends of one transaction, {appends[writer, key]}, in part or out of order)",
            )
    return None


def _order_versions(facts: Facts, seen: Lists, writes: dict[tuple[Key, Value], Write]) -> None:
    """Neighbours in the longest list of each key; a finding for every list that is no prefix of it."""
    for key, lists in seen.items():
        longest = max(lists, key=lambda each: (len(each[2]), [-each[0]]))[2]
        for t, i, value in lists:
            if value != longest[: len(value)]:
                facts.findings.append(bad_read("IncompatibleOrder", t, facts.txns[t], i, "is no prefix of the longest"))
        authors = (writes[key, element].txn for element in longest if (key, element) in writes)
        for one, other in pairwise(author for author, _ in groupby(authors)):
            facts.versions.append((one, other, key))
