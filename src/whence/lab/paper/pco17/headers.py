"""Stamp size and error rate of (N, R, K) clocks, vector clocks and tickets, on the same messages.

Every clock runs in the same engine, over the same messages and delays, with the same oracle. The vector clock is R = N,
K = 1, one entry per process. Tickets (the cct clock) are R = n, K = 1, one entry per publisher, so they are compared
where only `n` of the N processes publish. Where all publish, tickets would change owner at nearly every message, which
is not their purpose.

`bytes` is the size of a stamp at the end of a run, as members send it: `Packed` counts for (N, R, K) and vector clocks,
(incarnation, seq) pairs for tickets. `plain_bytes` is the size of the same counts as msgpack.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from whence.core.clock import Incarnation
from whence.core.clock.event import Packed
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, on_arrays
from whence.lab.paper.pco17 import PAPER, SHARE, rates
from whence.lab.paper.plots import BEHIND, COLOURS, error_bars, panels
from whence.lab.scale.network import ScaleSettings, prepare
from whence.lab.stats import Estimate, exact, mean, quotient

NS = (100, 300, 1000, 3000)
CLOCKS = ((25, 2), (50, 3), (100, 4), (200, 7))
PUBLISHERS = (0, 25, 5)
"""0: all publish."""
TENURE = Incarnation(1, 0, 1).packed
"""The incarnation of a ticket with its first owner."""


def measure(options: RunOptions) -> list[Row]:
    """The same messages under every clock, for each N and number of publishers."""
    messages = 2_000 if options.quick else 40_000
    rows: list[Row] = []
    for n in NS:
        for publishers in PUBLISHERS:
            common = {**PAPER, "processes": n, "publishers": publishers, "deliveries": float(messages * (n - 1))}
            clocks = [(f"({r}, {k})", r, k) for r, k in CLOCKS if r < n] + [("vector clock", n, 1)]
            clocks += [(f"{publishers} tickets", publishers, 1)] if publishers else []
            found = on_arrays(options, [{**common, "entries": r, "keys": k} for _, r, k in clocks], seeds=4)
            for (name, r, k), row in zip(clocks, found, strict=True):
                rows.append({"clock": name, **sizes({**common, "entries": r, "keys": k, "seed": options.seed}), **row})
    return rows


def sizes(setting: dict[str, Any]) -> Row:
    """The size of a stamp that counts everything sent in a run (a real one lacks the few messages in flight)."""
    settings = msgspec.convert(setting, ScaleSettings)
    made = prepare(settings)
    sent = np.bincount(made.net.sender[: made.last], minlength=settings.processes)
    counts = np.bincount(made.keys.ravel(), np.repeat(sent, settings.keys), settings.entries)
    stamp = [int(count) for count in counts]
    tickets = settings.keys == 1 and settings.publishers == settings.entries
    carried = [(TENURE, seq) for seq in stamp] if tickets else Packed.of(stamp)
    return {"bytes": len(msgspec.msgpack.encode(carried)), "plain_bytes": len(msgspec.msgpack.encode(stamp))}


def statistics(rows: list[Row]) -> Statistics:
    """Bytes are exact; error rates have intervals."""

    def those(clock: str, publishers: int | None = None) -> dict[int, Row]:
        return {r["processes"]: r for r in rows if r["clock"] == clock and publishers in (None, r["publishers"])}

    errorless = [row for row in rows if row["clock"] == "vector clock" or "tickets" in row["clock"]]
    vector, small = those("vector clock", 0), those("(100, 4)", 0)
    tickets = {p: those(f"{p} tickets") for p in PUBLISHERS if p}
    free = {p: those("(100, 4)", p) for p in PUBLISHERS}

    def by(a: dict[int, Row], b: dict[int, Row], key: str = "bytes") -> list[Estimate]:
        return [exact(f"N = {n}: {a[n][key]} and {b[n][key]}", a[n][key] / b[n][key]) for n in a if n in b]

    one, many = by({1000: small[1000]}, vector), by({3000: small[3000]}, vector)
    return {
        "no-error": [
            exact(f"{sum(r['deliveries'] for r in errorless)} deliveries", sum(r["errors"] for r in errorless))
        ],
        "errors": [exact(f"N = {n}", row["errors"]) for n, row in small.items()],
        "any-N": [
            exact(f"{small[300]['bytes']} and {small[3000]['bytes']}", small[3000]["bytes"] / small[300]["bytes"])
        ],
        "of-vector-1000": one,
        "of-vector-3000": many,
        "tickets-5": by(tickets[5], free[5]),
        "tickets-25-counts": by(tickets[25], free[25], "plain_bytes"),
        "tickets-25-bytes": by(tickets[25], free[25]),
        "higher-R": [
            quotient(f"{b} by {a}", rates(those(b, 0)[n]), rates(those(a, 0)[n]), 2 * (len(CLOCKS) - 1))
            for n in (1000, 3000)
            for a, b in pairwise(f"({r}, {k})" for r, k in CLOCKS)
        ],
        "few-publishers": [quotient("N = 1000", rates(free[25][1000]), rates(free[0][1000]))],
    }


def draw(rows: list[Row]) -> Any:
    """Bytes against errors: all publish; 25 do."""
    figure, plots = panels(
        "Stamp size and error rate, 200 messages/s, the same messages under every clock",
        ("bytes of a stamp, all processes publish", SHARE),
        ("bytes of a stamp, 25 processes publish", SHARE),
    )
    for axes, publishers in zip(plots, (0, 25), strict=True):
        for i, n in enumerate(NS):
            mine = [row for row in rows if row["processes"] == n and row["publishers"] == publishers]
            some = [row for row in mine if row["exact_rate"] > 0]
            found = [mean("", rates(r)) for r in some]
            error_bars(axes, [r["bytes"] for r in some], found, f"N = {n}", i, least=0.1)
            vector = next(row for row in mine if row["clock"] == "vector clock")
            axes.axvline(vector["bytes"], color=COLOURS[i], linestyle=":", linewidth=1.2)
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
            textcoords="offset points", fontsize=7, bbox=BEHIND,
        )  # fmt: skip


STUDY = Study(measure, statistics, draw)
