"""Verify a certificate: `python -m whence.audit.history.verify OPERATIONS CERTIFICATE`. Standard library only."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any


def verify(rows: Any, order: Any, level: str = "TCC") -> str | None:
    """None if the order proves the level; else why not. A row: session, transaction (0, 1, ...), r/w/a, key, value."""
    txns, last, lists, done, clocks, before = ({} for _ in range(6))  # type: Any, Any, Any, Any, Any, Any
    for s, i, kind, key, value in rows:
        txns.setdefault((s, i), []).append((kind, key, value))
        if kind != "r":
            last[s, i, key] = [value] if kind == "w" else [*last.get((s, i, key), []), value]
        elif isinstance(value, list):
            lists.setdefault(key, []).append(value)
    wrote = {(key, v): (s, i) for (s, i, key), values in last.items() for v in values if v is not None}
    rank = {tuple(t): n for n, t in enumerate(order)}
    disagree = any(b[: len(a)] != a for those in lists.values() for a, b in pairwise(sorted(those, key=len)))
    if disagree or len(rank) != len(order) or any(t not in rank for t in txns):
        return "a list is no prefix of the longest" if disagree else "not every transaction stands in the order once"
    for t in map(tuple, order):
        if t[0] in before and before[t[0]] >= t:
            return f"{t} stands behind a later transaction of its session"
        clock, own, reads = {**clocks.get(before.get(t[0]), {}), t[0]: t[1]}, {}, []  # type: Any, Any, Any
        before[t[0]] = t
        for kind, key, value in txns.get(t, []):
            mine = own.get(key, [])
            if kind != "r":
                own[key] = [value] if kind == "w" else [*mine, value]
                continue
            seen = value if isinstance(value, list) else [value] if value is not None else []
            if mine and (seen[-len(mine) :] or [None]) != mine:
                return f"{t} reads {key}={value}, not its own last write"
            seen = seen[: max(0, len(seen) - len(mine))]
            authors: Any = list(dict.fromkeys(wrote.get((key, v)) for v in seen))
            ordered = None not in authors and all(rank[a] < rank[b] for a, b in pairwise([*authors, t]))
            if not ordered or seen != [v for a in authors for v in last[(*a, key)]]:
                return f"{t} reads {key}={value}: not written, in part, or not in commit order"
            reads += [] if mine else [(key, authors[-1] if authors else None)]
        for w in [w for _, w in reads if w and clock.get(w[0], 0) <= w[1]]:
            clock = {s: max(clock.get(s, 0), clocks[w].get(s, 0)) for s in clock | clocks[w]} | {w[0]: w[1] + 1}
        for at, (key, writer) in enumerate(reads):
            early = {w for _, w in reads[: at if level == "RC" else None]}
            for t2 in reversed(done.get(key, [])):
                if t2 == writer:
                    break
                if t2 in early or (level != "RC" and t2[0] == t[0]) or (level == "TCC" and clock.get(t2[0], 0) > t2[1]):
                    return f"{t} reads {key} from {writer or 'init'}, but saw {t2}, which overwrote it"
        clocks[t] = clock
        for key in own:
            done.setdefault(key, []).append(t)
    return None


if __name__ == "__main__":
    operations, proof = (Path(name).read_text() for name in sys.argv[1:])
    sys.exit(verify(map(json.loads, operations.splitlines()), *(json.loads(proof)[n] for n in ("order", "level"))))
