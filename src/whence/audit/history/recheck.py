"""Re-check a counterexample against the operations of the history. Standard library only, none of our other code.

It takes the JSON form of a finding, and rows as `verify` does. A cycle is right if every edge follows from the
operations by the definitions; a bad read is right if the definition of read consistency forbids it.
"""

from itertools import pairwise
from typing import Any

INIT = ("init", -1)


def recheck(rows: Any, found: Any) -> str | None:
    """None if the counterexample is right; else what is wrong with it."""
    txns: Any = {}
    for s, i, kind, key, value in rows:
        txns.setdefault((s, i), []).append((kind, key, value))
    place = {t["txn"]: (t["session"], t["index"]) for t in found["transactions"]} | {"init": INIT}
    for edge in found["edges"]:
        if not follows(txns, place, edge):
            return f"the edge {edge['from']} -> {edge['to']} ({edge['kind']}) does not follow from the operations"
    if found["edges"]:
        ends = [(edge["from"], edge["to"]) for edge in found["edges"]]
        closed = all(a[1] == b[0] for a, b in zip(ends, ends[1:] + ends[:1], strict=True))
        return None if closed else "the edges are no cycle"
    if found["read"] is None:
        return "neither a cycle nor a read"
    t = place[found["transactions"][0]["txn"]]
    return None if inconsistent(txns, t, found["read"], found["pattern"]) else "the read is consistent"


def writes(txns: Any, t: Any, key: Any) -> Any:
    return [v for kind, k, v in txns.get(t, []) if kind != "r" and k == key]


def external(txns: Any, t: Any) -> Any:
    """Reads with no own write of the key before them; of a list its last element."""
    own = set()
    for at, (kind, key, value) in enumerate(txns[t]):
        if kind != "r":
            own.add(key)
        elif key not in own:
            yield at, key, value[-1] if isinstance(value, list) and value else None if value == [] else value


def follows(txns: Any, place: Any, edge: Any) -> Any:
    src, dst, key = place[edge["from"]], place[edge["to"]], edge.get("key")
    if edge["kind"] == "so":
        return src == INIT or (src[0] == dst[0] and src[1] < dst[1])
    wrote, after = writes(txns, src, key), writes(txns, dst, key)
    if edge["kind"] == "wr":
        return edge["value"] in wrote and any((k, v) == (key, edge["value"]) for _, k, v in external(txns, dst))
    if edge["kind"] == "vo":
        lists = [v for ops in txns.values() for kind, k, v in ops if kind == "r" and k == key]
        return any(a in wrote and b in after for each in lists for a, b in pairwise(each))
    reader, way = place[edge["reader"]], edge["past"]
    at = [i for i, k, v in external(txns, reader) if k == key and v in ([None] if dst == INIT else after)]
    chain = [edge["from"], *(step["to"] for step in way)]
    good = at and wrote and src not in (dst, reader) and way and chain[-1] == edge["reader"]
    good = good and all(follows(txns, place, s) and s["from"] == a for s, a in zip(way, chain, strict=False))
    if edge["level"] == "TCC":
        return good
    first = [i for i, k, v in external(txns, reader) if v is not None and v in writes(txns, src, k)]
    return good and len(way) == 1 and (edge["level"] == "RA" or (first and first[0] < at[-1]))


def inconsistent(txns: Any, t: Any, at: Any, pattern: Any) -> bool:
    _, key, value = txns[t][at]
    before = [(kind, v) for kind, k, v in txns[t][:at] if k == key]
    own = [v for kind, v in before if kind != "r"]
    lists = isinstance(value, list)
    if pattern == "NonRepeatableRead":
        return bool(before and before[-1][0] == "r" and before[-1][1] != value)
    if pattern == "IncompatibleOrder":
        others = [v for ops in txns.values() for kind, k, v in ops if kind == "r" and k == key]
        return any(v[: len(value)] != value[: len(v)] for v in others)
    if own and (value[-len(own) :] == own if lists else value == own[-1]):
        value = value[: -len(own)] if lists else None
    elif own:
        return True  # not its own last write
    seen = value if lists else [] if value is None else [value]
    finals = [vs if lists else vs[-1:] for other in txns if other != t and (vs := writes(txns, other, key))]
    while seen and (part := next((vs for vs in finals if seen[: len(vs)] == vs), None)):
        seen = seen[len(part) :]
        finals.remove(part)
    return bool(seen)
