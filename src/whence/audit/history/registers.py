"""CC, CM and CCv for histories of single operations (Bouajjani, Enea, Guerraoui & Hamza 2017).

The causal order is `(po u rf)+`, here `so u wr`. CCv is TCC with one operation a transaction. CM needs, for each
session, what that session can know of the order of all writes in its past: quadratic memory, so its size is limited.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from whence.audit.history.graph import Causes, in_past
from whence.audit.history.model import INIT, Key
from whence.audit.history.reads import Facts
from whence.audit.history.report import Finding
from whence.errors import HistoryError

CM_LIMIT: Final = 20_000
"""Operations up to which CM is offered."""


def causal_patterns(facts: Facts, found: Causes) -> tuple[Counter[str], list[Finding]]:
    """WriteCOInitRead and WriteCORead: for each read the last writers of its key in its past, session by session."""
    counted: Counter[str] = Counter()
    shown: dict[str, Finding] = {}
    by_key: dict[Key, dict[int, list[int]]] = {}
    for key, writers in facts.writers.items():
        for t in writers:
            by_key.setdefault(key, {}).setdefault(facts.session[t], []).append(t)
    assert found.clock is not None
    for read in facts.reads:
        clock = found.clock[read.txn]
        for s, writers in by_key.get(read.key, {}).items():
            i = bisect_left(writers, facts.first[s] + clock[s]) - 1
            if i < 0 or writers[i] == read.writer:
                continue
            newer = writers[i]
            if read.writer == INIT or in_past(facts, found, read.writer, newer):
                pattern = "WriteCOInitRead" if read.writer == INIT else "WriteCORead"
                counted[pattern] += 1
                if pattern not in shown:
                    shown[pattern] = _finding(facts, pattern, read.txn, read.key, newer)
                break
    return counted, list(shown.values())


def _finding(facts: Facts, pattern: str, reader: int, key: Key, write: int) -> Finding:
    r, w = facts.txns[reader], facts.txns[write]
    detail = (
        f"transaction {r.name} of session {r.session}: {r.ops[0]}, although {w.ops[0]} of transaction {w.name} "
        f"of session {w.session} is before it"
    )
    return Finding(pattern, (reader, write), (key,), detail)


def causal_memory(file: str, facts: Facts, found: Causes) -> tuple[Counter[str], list[Finding]]:
    """WriteHBInitRead and CyclicHB: saturation of hb_o for the last operation o of each session.

    hb_o contains the causal order on the past of o; and if a read r2 of o's session reads x from w2, and w1 writes x
    and is before r2, then w1 is before w2. It grows along a session, so the last operation is enough.
    """
    total = len(facts.txns)
    if total > CM_LIMIT:
        raise HistoryError(
            f"{file}: CM is offered up to {CM_LIMIT:,} operations (it takes quadratic memory); this has {total:,}"
        )
    assert found.clock is not None
    counted: Counter[str] = Counter()
    shown: dict[str, Finding] = {}
    past = [0] * total  # the causal past of each operation as a set of bits
    for t in found.order:
        before = past[t - 1] | 1 << (t - 1) if t > facts.first[facts.session[t]] else 0
        for w, _, _ in found.before[t]:
            before |= past[w] | 1 << w
        past[t] = before
    reads = {read.txn: read for read in facts.reads}
    masks = {key: sum(1 << t for t in writers) for key, writers in facts.writers.items()}
    position = {t: i for i, t in enumerate(found.order)}
    for first, end in zip(facts.first, facts.first[1:], strict=False):
        if first == end:
            continue
        inside = past[end - 1] | 1 << (end - 1)
        nodes = [t for t in range(total) if inside >> t & 1]
        nodes.sort(key=position.__getitem__)
        known = {t: past[t] for t in nodes}
        mine = [reads[t] for t in range(first, end) if t in reads]
        changed = True
        while changed:
            changed = False
            for read in mine:
                if read.writer == INIT:
                    continue
                fresh = known[read.txn] & masks[read.key] & ~known[read.writer] & ~(1 << read.writer)
                if fresh:
                    changed = True
                    _precede(known, fresh, read.writer)
        for t in nodes:
            if known[t] >> t & 1:
                counted["CyclicHB"] += 1
                session = facts.txns[first].session
                shown.setdefault("CyclicHB", _cyclic(facts, t, session))
                break
        for read in mine:
            if read.writer == INIT and known[read.txn] & masks.get(read.key, 0):
                counted["WriteHBInitRead"] += 1
                write = (known[read.txn] & masks[read.key]).bit_length() - 1
                shown.setdefault("WriteHBInitRead", _finding(facts, "WriteHBInitRead", read.txn, read.key, write))
    return counted, list(shown.values())


def _precede(before: dict[int, int], fresh: int, writer: int) -> None:
    """Put the operations `fresh`, and what is before them, before `writer` and all behind it."""
    more = fresh
    rest = fresh
    while rest:
        low = rest & -rest
        more |= before[low.bit_length() - 1]
        rest ^= low
    bit = 1 << writer
    for t, those in before.items():
        if t == writer or those & bit:
            before[t] = those | more


def _cyclic(facts: Facts, t: int, session: str) -> Finding:
    txn = facts.txns[t]
    key = txn.ops[0].key
    detail = f"session {session} would have to see {txn.ops[0]} of session {txn.session} before itself"
    return Finding("CyclicHB", (t,), (key,), detail)
