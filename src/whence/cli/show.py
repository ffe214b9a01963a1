"""Tables and progress for people."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from whence.audit.judge import promise

if TYPE_CHECKING:
    from whence.lab.sim.tally import RunReport

_COUNTS = (
    *("members", "published", "delivered", "lost", "late", "over_gap", "inversions", "duplicates", "asked"),
    *("recovered", "given_up", "header_bytes", "blocked"),
)
_ERRING = {"alerts4": "alerts, Algorithm 4", "alerts5": "alerts, Algorithm 5", "missed": "inversions without alert 5"}
"""Only where an order may err."""


def console() -> Console:
    """Standard output; wide enough for a table also when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 160)


def facts(title: str, values: Mapping[str, str]) -> Table:
    """Names and values."""
    table = Table(title=title or None, show_header=False)
    for name, value in values.items():
        table.add_row(name, value)
    return table


Tick = Callable[[float | None, str], None]
"""How much of the work is done, 0 to 1 (None: unknown), and what is being done (empty: as before)."""
SAY_EVERY_S = 10.0


@contextmanager
def progress(what: str, every: float | None = None) -> Iterator[Tick]:
    """A bar on standard error; where that is no terminal, a line every ten seconds (or `every` so many)."""
    if not sys.stderr.isatty():
        every, over = SAY_EVERY_S if every is None else every, threading.Event()
        tick = _lines(what, every)

        def repeat() -> None:
            while not over.wait(every):  # what compiles does not tick
                tick(None, "")

        if 0 < every < threading.TIMEOUT_MAX:
            threading.Thread(target=repeat, name="progress", daemon=True).start()
        try:
            yield tick
        finally:
            over.set()
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def tick(done: float | None, said: str) -> None:
            bar.update(task, total=None if done is None else 1.0, completed=done, description=said or what)

        yield tick


def _lines(what: str, every: float) -> Tick:
    began = said_at = time.monotonic()
    last = what

    def tick(done: float | None, said: str) -> None:
        nonlocal said_at, last
        now = time.monotonic()
        if said or done is not None:
            last = (said or what) + ("" if done is None else f", {done:.0%}")
        if now - said_at >= every and done != 1:
            said_at = now
            print(f"whence: {now - began:.0f} s: {last}", file=sys.stderr, flush=True)

    return tick


def soak_table(orders: Mapping[str, Mapping[str, int]]) -> Table:
    """The sums of many runs, per order: what one promises another does not."""
    titles = ("published", "delivered", "lost", "over_gap", "inversions")
    table = Table("members' order", "promises", *(Column(t.replace("_", " "), justify="right") for t in titles))
    for order, sums in sorted(orders.items()):
        table.add_row(order, promise(order).says, *(f"{sums[t]:,}" for t in titles))
    return table


def report_tables(report: RunReport) -> Iterator[Table]:
    """The report of one run, as tables."""
    columns = (Column(f"{line.order}\n{line.cluster}", justify="right") for line in report.lines)
    title = f"{report.scenario}, seed {report.seed}: {report.virtual_s:g} s of virtual time"
    events = Table("events", *columns, title=title)
    errs = any(line.order == "probabilistic" for line in report.lines)
    for field in (*_COUNTS, *(_ERRING if errs else ())):
        events.add_row(
            _ERRING.get(field, field.replace("_", " ")), *(f"{getattr(line, field):,}" for line in report.lines)
        )
    for quantile in ("p50", "p90", "p99", "max"):
        values = [line.latency_ms.get(quantile) for line in report.lines]
        events.add_row(f"latency {quantile}", *("-" if v is None else f"{v:,.1f} ms" for v in values))
    events.add_row("waited, mean of all", *(f"{line.blocked_ms:,.1f} ms" for line in report.lines))
    if errs:
        events.add_row("error rate (inversions per delivery)", *(f"{line.error_rate:.2e}" for line in report.lines))
    yield events
    counted = {
        "network": report.network,
        "tickets": report.tickets,
        "joined by": report.joined,
        "not published": report.not_published,
        "counters": {"steps": report.steps, **report.counters},
    }
    said = {title: ", ".join(f"{k} {v:,}" for k, v in counts.items() if v) or "-" for title, counts in counted.items()}
    full = ", ".join(f"{k} {fill:,}/{bound:,}" for k, (fill, bound) in report.buffers.items() if fill)
    yield facts("", {**said, "fullest buffers": full or "-"})
