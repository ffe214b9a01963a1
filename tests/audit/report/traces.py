"""Small traces written by hand."""

from __future__ import annotations

from whence.audit.trace import Row


def trace(*steps: tuple[str, str, str], cluster: str = "c") -> list[Row]:
    """(member, kind, event) by time; a member's first step is its join."""
    rows: list[Row] = []
    at: dict[str, int] = {}
    for member in dict.fromkeys(m for m, _, _ in steps):
        rows.append(Row("r", cluster, member, 0, 0, "join", reason="genesis", order="causal"))
        at[member] = 1
    for t, (member, kind, event) in enumerate(steps, 1):
        origin = event.partition("@")[2] or None
        rows.append(Row("r", cluster, member, at[member], t * 1_000_000, kind, event=event, origin=origin))
        at[member] += 1
    return rows


TRIANGLE = trace(
    ("a#1", "publish", "q@a#1"),
    ("a#1", "deliver", "q@a#1"),
    ("b#1", "deliver", "q@a#1"),
    ("b#1", "publish", "answer@b#1"),
    ("b#1", "deliver", "answer@b#1"),
    ("c#1", "deliver", "answer@b#1"),
    ("c#1", "deliver", "q@a#1"),
    ("a#1", "deliver", "answer@b#1"),
)
