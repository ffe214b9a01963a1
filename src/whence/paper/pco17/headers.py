"""What a message has to carry, and what that buys: (N, R, K), vector clocks and tickets, on the same messages.

Bytes are those of the stamp of the last message of a run, as msgpack. The vector clock is the same engine with R = N,
K = 1, each process its own entry. Tickets (the cct clock): only `n` processes at a time may publish, each entry is
(incarnation, seq); their order is exact, so their error rate is 0 by construction and not measured here.
"""

from __future__ import annotations

import msgspec

from whence.paper.frame import Claim, Context, Outcome, Row, canvas, measure
from whence.paper.pco17 import COLOURS, PAPER
from whence.scale.general import General
from whence.scale.network import Settings, prepare

NS = (100, 300, 1000, 3000)
CLOCKS = ((25, 2), (50, 3), (100, 4), (200, 7))
TICKETS = (5, 25)


def stamp_bytes(settings: Settings) -> int:
    """The size of a stamp that a run really made."""
    engine = General(prepare(settings))
    while engine.step(10_000):
        pass
    state, last = engine.state, engine.total - 1
    stamp = state.stamp[last & (len(state.stamp) - 1), : settings.entries]
    return len(msgspec.msgpack.encode(stamp.tolist()))


def run(context: Context) -> Outcome:
    """For every N the same messages under every clock."""
    messages = 2_000 if context.quick else 20_000
    rows: list[Row] = []
    for n in NS:
        common = {**PAPER, "processes": n, "deliveries": float(messages * (n - 1))}
        clocks = [(f"({r}, {k})", r, k) for r, k in CLOCKS if r <= n] + [("vector clock", n, 1)]
        found = measure(context, [{**common, "entries": r, "keys": k} for _, r, k in clocks])
        for (name, r, k), row in zip(clocks, found, strict=True):
            made = Settings(processes=n, entries=r, keys=k, deliveries=messages / 4 * (n - 1), seed=context.seed * 1000)
            rows.append({"clock": name, "bytes": stamp_bytes(made), **row})
        for tickets in TICKETS:
            size = len(msgspec.msgpack.encode([(1, messages // 4 // tickets)] * tickets))
            rows.append({"clock": f"{tickets} tickets", "bytes": size, "processes": n, "exact_rate": 0.0})
    vector = {row["processes"]: row for row in rows if row["clock"] == "vector clock"}
    small = {row["processes"]: row for row in rows if row["clock"] == "(100, 4)"}
    sizes = {n: (small[n]["bytes"], vector[n]["bytes"]) for n in (1000, 3000)}
    claims = [
        Claim(
            "the vector clock makes no error",
            all(row["errors"] == 0 for row in vector.values()),
            {"deliveries": sum(row["deliveries"] for row in vector.values())},
        ),
        Claim(
            "(N, 100, 4) carries the same bytes whatever N is (within a tenth)",
            abs(small[3000]["bytes"] / small[100]["bytes"] - 1) <= 0.1,
            {n: row["bytes"] for n, row in small.items()},
        ),
        Claim(
            "at N = 1000 that is a fifth of a vector clock's, or less",
            sizes[1000][0] * 5 <= sizes[1000][1],
            {"bytes": sizes},
        ),
    ]
    figure, axes = canvas(
        "Stamp size and error rate, 200 messages/s, the same messages under every clock",
        "bytes of a stamp (msgpack)",
        "share of deliveries before their past",
    )
    for n, colour in zip(NS, COLOURS, strict=False):
        mine = [row for row in rows if row["processes"] == n and row["exact_rate"] > 0]
        axes.errorbar(
            [r["bytes"] for r in mine],
            [r["exact_rate"] for r in mine],
            yerr=[r["exact_rate_error"] for r in mine],
            fmt="o-",
            markersize=4,
            capsize=2.5,
            color=colour,
            label=f"N = {n}",
        )
        axes.axvline(vector[n]["bytes"], color=colour, linestyle=":", linewidth=1.2)
    for row in (row for row in rows if row["processes"] == 1000 and row["exact_rate"] > 0):
        axes.annotate(
            f"R, K = {row['clock'].strip('()')}",
            (row["bytes"], row["exact_rate"]),
            xytext=(-6, -12),
            textcoords="offset points",
            fontsize=7,
            ha="right",
        )
    for tickets, marker in zip(TICKETS, ("^", "s"), strict=True):
        size = next(row["bytes"] for row in rows if row["clock"] == f"{tickets} tickets")
        axes.plot(
            [size],
            [0.02],
            marker,
            color="black",
            transform=axes.get_xaxis_transform(),
            label=f"{tickets} tickets: no error",
        )
    axes.plot([], [], ":", color="grey", label="vector clock of N entries: no error")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    return Outcome(rows, claims, figure)
