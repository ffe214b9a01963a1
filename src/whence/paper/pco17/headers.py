"""Stamp size and error rate of (N, R, K) clocks, vector clocks and tickets, on the same messages.

Every clock runs in the same engine, over the same messages and delays, with the same oracle. The vector clock is R = N,
K = 1, one entry per process. Tickets (the cct clock) are R = n, K = 1, one entry per publisher, so they are compared
where only `n` of the N processes publish. Where all publish, tickets would change owner at nearly every message, which
is not their purpose.

`bytes` is the size of a stamp at the end of a run, as members send it: `Packed` counts for (N, R, K) and vector clocks,
(incarnation, seq) pairs for tickets. `plain_bytes` is the size of the same counts as msgpack.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from whence.clock import Incarnation
from whence.clock.free import Packed
from whence.paper.frame import Claim, Context, Outcome, Row, error_bars, measure, panels
from whence.paper.pco17 import COLOURS, PAPER, SHARE
from whence.scale.network import Settings, prepare

NS = (100, 300, 1000, 3000)
CLOCKS = ((25, 2), (50, 3), (100, 4), (200, 7))
PUBLISHERS = (0, 25, 5)
"""0: all publish."""
TENURE = Incarnation(1, 0, 1).packed
"""The incarnation of a ticket with its first owner."""


def run(context: Context) -> Outcome:
    """The same messages under every clock, for each N and number of publishers."""
    messages = 2_000 if context.quick else 40_000
    rows: list[Row] = []
    for n in NS:
        for publishers in PUBLISHERS:
            common = {**PAPER, "processes": n, "publishers": publishers, "deliveries": float(messages * (n - 1))}
            clocks = [(f"({r}, {k})", r, k) for r, k in CLOCKS if r < n] + [("vector clock", n, 1)]
            clocks += [(f"{publishers} tickets", publishers, 1)] if publishers else []
            # With few senders most messages overtake something: too much for the fast engine.
            engine = "general" if publishers else "auto"
            found = measure(context, [{**common, "entries": r, "keys": k, "engine": engine} for _, r, k in clocks])
            for (name, r, k), row in zip(clocks, found, strict=True):
                rows.append({"clock": name, **sizes({**common, "entries": r, "keys": k, "seed": context.seed}), **row})
    return Outcome(rows, claims(rows), draw(rows))


def sizes(setting: dict[str, Any]) -> Row:
    """The size of a stamp that counts everything sent in a run (a real one lacks the few messages in flight)."""
    settings = msgspec.convert({key: value for key, value in setting.items() if key != "sample"}, Settings)
    made = prepare(settings)
    sent = np.bincount(made.net.sender[: made.last], minlength=settings.processes)
    counts = np.bincount(made.keys.ravel(), np.repeat(sent, settings.keys), settings.entries)
    stamp = [int(count) for count in counts]
    tickets = settings.keys == 1 and settings.publishers == settings.entries
    carried = [(TENURE, seq) for seq in stamp] if tickets else Packed.of(stamp)
    return {"bytes": len(msgspec.msgpack.encode(carried)), "plain_bytes": len(msgspec.msgpack.encode(stamp))}


def claims(rows: list[Row]) -> list[Claim]:
    """Which clock is exact, which is small, and when."""

    def those(clock: str, publishers: int | None = None) -> dict[int, Row]:
        return {r["processes"]: r for r in rows if r["clock"] == clock and publishers in (None, r["publishers"])}

    exact = [row for row in rows if row["clock"] == "vector clock" or "tickets" in row["clock"]]
    vector, small = those("vector clock", 0), those("(100, 4)", 0)
    tickets = {p: those(f"{p} tickets") for p in PUBLISHERS if p}
    free = {p: those("(100, 4)", p) for p in PUBLISHERS}
    rates = {p: {n: row["exact_rate"] for n, row in mine.items()} for p, mine in free.items()}
    return [
        Claim(
            "vector clocks and tickets make no error, on the very messages on which (N, R, K) does",
            all(row["errors"] == 0 for row in exact) and all(row["errors"] > 0 for row in small.values()),
            {"deliveries": sum(row["deliveries"] for row in exact), "rates_of_(100, 4)_by_publishers": rates},
        ),
        Claim(
            "(N, 100, 4) carries the same bytes whatever N is (within a tenth)",
            abs(small[3000]["bytes"] / small[300]["bytes"] - 1) <= 0.1,
            {"bytes": {n: row["bytes"] for n, row in small.items()}},
        ),
        Claim(
            "at N = 1000 that is a quarter of a vector clock's, or less, and at N = 3000 a tenth",
            small[1000]["bytes"] * 4 <= vector[1000]["bytes"] and small[3000]["bytes"] * 10 <= vector[3000]["bytes"],
            {"bytes": {n: (small[n]["bytes"], vector[n]["bytes"]) for n in small}},
        ),
        Claim(
            "where 5 publish, tickets are exact and smaller than (N, 100, 4)",
            all(row["bytes"] < free[5][n]["bytes"] for n, row in tickets[5].items() if n in free[5]),
            {"bytes": {n: (row["bytes"], free[5][n]["bytes"]) for n, row in tickets[5].items() if n in free[5]}},
        ),
        Claim(
            "where 25 publish, tickets have fewer counts, but more bytes as members send them: each with its "
            "incarnation, unpacked",
            all(
                row["plain_bytes"] < free[25][n]["plain_bytes"] and row["bytes"] > free[25][n]["bytes"]
                for n, row in tickets[25].items()
                if n in free[25]
            ),
            {
                "plain_bytes": {n: row["plain_bytes"] for n, row in tickets[25].items()},
                "bytes": {n: row["bytes"] for n, row in tickets[25].items()},
            },
        ),
        Claim(
            "few publishers do not spare (N, R, K) its errors: at N = 1000, 25 of 1000 publishing make as many or more",
            free[25][1000]["exact_rate"] >= free[0][1000]["exact_rate"],
            {"rates_by_publishers": {p: mine[1000] for p, mine in rates.items()}},
        ),
    ]


def draw(rows: list[Row]) -> Any:
    """Bytes against errors: all publish; 25 do."""
    figure, plots = panels(
        "Stamp size and error rate, 200 messages/s, the same messages under every clock",
        ("bytes of a stamp, all processes publish", SHARE),
        ("bytes of a stamp, 25 processes publish", SHARE),
    )
    for axes, publishers in zip(plots, (0, 25), strict=True):
        for n, colour in zip(NS, COLOURS, strict=False):
            mine = [row for row in rows if row["processes"] == n and row["publishers"] == publishers]
            some = [row for row in mine if row["exact_rate"] > 0]
            x, y = [r["bytes"] for r in some], [r["exact_rate"] for r in some]
            error_bars(axes, x, y, [r["exact_rate_error"] for r in some], "o-", colour, f"N = {n}")
            vector = next(row for row in mine if row["clock"] == "vector clock")
            axes.axvline(vector["bytes"], color=colour, linestyle=":", linewidth=1.2)
            if n == 1000:
                _name(axes, some)
        for row in (r for r in rows if r["processes"] == 1000 and r["publishers"] == publishers):
            if "tickets" in row["clock"]:
                axes.axvline(row["bytes"], color="black", linestyle="-.", linewidth=1.2, label="25 tickets: no error")
        axes.plot([], [], ":", color="grey", label="vector clock of N entries: no error")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.legend(fontsize=8)
    return figure


def _name(axes: Any, rows: list[Row]) -> None:
    for row in rows:
        axes.annotate(
            f"R, K = {row['clock'].strip('()')}", (row["bytes"], row["exact_rate"]), xytext=(6, 4),
            textcoords="offset points", fontsize=7,
        )  # fmt: skip
