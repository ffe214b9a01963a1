"""What the claims about Table 1 are judged by."""

from __future__ import annotations

from typing import Any

from whence.core.order import MECHANISMS
from whence.lab.stats import Estimate, exact, means, quotient, ratio

Row = dict[str, Any]
BLOCKING = ("identifiers", "vector", "compact-multicast", "compact-unicast", "interval")


class Table:
    """The rows of the table, by order, number of processes and load."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows
        loaded = [row for row in rows if row["order"] == "vector" and row["senders"] == 1.0]
        self.rate = loaded[0]["rate"]
        self.sizes = sorted({int(row["processes"]) for row in loaded})

    def runs(self, order: str, column: str, senders: float = 1.0) -> dict[int, list[float]]:
        """By the number of processes, the runs of a column."""
        return {
            int(r["processes"]): [run[column] for run in r["runs"]]
            for r in self.rows
            if (r["order"], r["senders"]) == (order, senders) and r["rate"] in (self.rate, 0.0, 5.0)
        }


def statistics(rows: list[Row]) -> dict[str, list[Estimate]]:
    """The points of every claim."""
    table = Table(rows)
    least, most = table.sizes[0], table.sizes[-1]
    big, vector = table.runs("first-unstable", "control_bytes"), table.runs("vector", "control_bytes")
    blocked = {order: table.runs(order, "blocked") for order in (*BLOCKING, "first-unstable")}
    few = {o: table.runs(o, "fixed_bytes", 0.1)[most] for o in ("vector", "compact-multicast")}
    chained = table.runs("subgroups", "control_bytes")
    small = min(chained)
    hostile = [row for row in rows if "inversions" in row]
    return {
        "promises": [exact(f"{len(rows)} rows", sum(1 for row in rows if row.get("violation")))],
        "hostile": [
            exact(f"{row['order']}, {row['delivered'] * row['seeds']:.0f} deliveries", row["inversions"] * row["seeds"])
            for row in hostile
        ],
        "non-blocking": [exact(f"{n} processes", max(runs)) for n, runs in blocked["first-unstable"].items()],
        "big": [quotient(f"{n} processes", big[n], vector[n], len(big)) for n in table.sizes],
        "block": means({f"{o}, {most} processes": blocked[o][most] for o in BLOCKING}),
        "linear": [quotient(f"{least} to {most} processes", vector[most], [x * most / least for x in vector[least]])],
        "compact": [ratio(f"{most} processes, a tenth multicast", few["compact-multicast"], few["vector"])],
        "interconnected": [quotient(f"{n} processes", runs, vector[most], len(chained)) for n, runs in chained.items()],
        "interconnected-any": [
            quotient(f"{n} by {small} processes", runs, chained[small], len(chained))
            for n, runs in chained.items()
            if n != small
        ],
        **_changes(table),
    }


def _changes(table: Table) -> dict[str, list[Estimate]]:
    """A change of the view, and a joiner in the stack."""
    pause, messages = (table.runs("view: vector", column) for column in ("pause_ms", "change_messages"))
    one, two = table.sizes[0], table.sizes[1]
    joins = {o: table.runs(f"join: {o}", "change_messages") for o in MECHANISMS}
    pauses = {o: table.runs(f"join: {o}", "pause_ms") for o in MECHANISMS}
    return {
        "view-stops": means({f"{n} processes": runs for n, runs in pause.items()}),
        "view-square": [quotient(f"{two} by {one} processes", messages[two], messages[one])],
        "join-stops": [
            exact(f"{o}, {n} processes, {len(runs)} runs", max(runs))
            for o, found in pauses.items()
            for n, runs in found.items()
        ],
        "join-messages": [
            quotient(f"{o}, {n} processes", runs, messages[n], 2 * len(joins))
            for o, found in joins.items()
            for n, runs in found.items()
        ],
    }
