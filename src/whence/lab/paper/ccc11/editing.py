"""An editing session as the load: authors publish a transaction once its causal past has been delivered to them.

The authors are the coordinators; the others only read. In each round an author publishes, in one frame, its next
transactions (`PER_ROUND` at most) whose past is complete: the load follows the recorded causality. In the end every
document should have the recorded text. The fanout is 2, too low for this many members, so that there is something to
recover.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from whence.core import ports
from whence.core.clock import Frame, MemberId, address_of
from whence.core.config import Config
from whence.core.member import Member
from whence.errors import UsageError
from whence.lab.paper.ccc11.evaluation import VARIANTS
from whence.lab.paper.ccc11.fig5 import NAMES, never
from whence.lab.paper.frame import Row, RunOptions, Statistics, Study, by_run, over_seeds
from whence.lab.paper.plots import curves, from_zero, panels
from whence.lab.replay import NAME, Author, Recording, recorded, session
from whence.lab.sim.meter import Meter
from whence.lab.sim.run import run as simulate
from whence.lab.sim.scenario import parse
from whence.lab.sim.settings import to_toml
from whence.lab.stats import Estimate, exact
from whence.live.objects import Objects
from whence.live.objects.kernel import events_of

PER_ROUND = 16
ROUND_MS = 100
LOSSES, QUICK = (0.0, 0.05, 0.3), (0.0, 0.05)
TRIED = {v: VARIANTS[v] for v in ("causal", "R1", "R4")} | {"reliable": ("reliable", "Rk")}
"""Order, recovery. Not gossip alone: it delivers operations before those they build on. Figure 5 has no reliable order,
but documents should use it."""
LABELS = {**NAMES, "reliable": "reliable order"}
USUAL = 0.05
"""Loss up to which the papers' recovery is expected to suffice."""
NEVER = 1 << 62


class EditingRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    path: str
    members: int
    transactions: int
    variant: str
    loss: float
    seed: int = 0


class _SessionReader(Member):
    """A member with the document; an author also writes its transactions."""

    objects: Objects
    author: Author | None
    next_at: int = 0
    until: int = NEVER
    wrote: int = 0
    """Transactions."""
    last_at: int = 0
    """When it wrote the last of them."""

    def handle(self, event: ports.Input, now: int) -> list[ports.Output]:
        outs = super().handle(event, now)
        for out in outs:
            if type(out) is ports.Deliver and isinstance(out.frame, Frame):
                for happened in events_of(out.frame, out.over_gap):
                    self.objects.apply(happened)
                    if self.author is not None:
                        self.author.hear(happened)
        author = self.author
        turn = self.next_at <= now < self.until and self.may_publish and not isinstance(event, ports.Publish)
        if author is not None and turn:
            try:
                payloads = author.write(PER_ROUND)
            except UsageError:  # an operation was lost, so the recorded position does not exist in this text
                payloads, self.next_at = [], NEVER
            if payloads:
                self.next_at = now + ROUND_MS * 10**6
                self.wrote, self.last_at = self.wrote + len(payloads), now
                outs = [*outs, *self.handle(ports.Publish(tuple(payloads)), now)]
        return outs


def beginning(recording: Recording, transactions: int) -> Recording:
    """About this many transactions from the beginning, with all of their past. The final text is then unknown."""
    kept = [0] * len(recording.authors)
    while sum(kept) < transactions:
        had = list(kept)
        for a, todo in enumerate(recording.authors):
            while kept[a] < len(todo) and sum(kept) < transactions:
                if any(n > had[b] for b, n in enumerate(todo[kept[a]].needs) if b != a):
                    break
                kept[a] += 1
        if kept == had:
            return recording
    return Recording([todo[:n] for todo, n in zip(recording.authors, kept, strict=True)], "")


def _table(s: EditingRun, authors: int, rounds: int) -> dict[str, Any]:
    """The scenario of a run."""
    order, recovery = TRIED[s.variant]
    return {
        "members": s.members,
        "round": f"{ROUND_MS}ms",
        "duration": f"{rounds}r",
        "settle": "60r",
        "network": {"latency": "normal", "mean": "10ms", "sd": "2ms", "loss": s.loss},
        "cluster": {
            "ring": "neighbours",
            "ring_round": "7r",
            "delta": "60ms",
            "mode": "rounds",
            "tickets": authors,
            "coordinators": authors,
            "order": order,
            "recovery": recovery,
            "k": 4,
            "fanout": 2,
            "termination": 5,
        },
    }


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A runner: replay the session once."""
    s = msgspec.convert(dict(setting), EditingRun)
    recording = beginning(session(s.path), s.transactions)
    authors = len(recording.authors)
    total = sum(map(len, recording.authors))
    # A turn takes a PrCast, and a recovery where gossip lost it. A lost event that is not recovered stops its readers.
    rounds = 60 + 4 * total // PER_ROUND
    table = _table(s, authors, rounds)
    meter = Meter(0, rounds * ROUND_MS * 10**6, 20 * ROUND_MS * 10**6, sizes=True)
    readers: list[_SessionReader] = []

    def make(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> _SessionReader:
        reader = _SessionReader(me, config, rng, checkpoint)
        reader.objects, reader.until = Objects(), rounds * ROUND_MS * 10**6
        index = int(address_of(me)[1:])
        reader.author = Author(recording, index, me) if index < authors else None
        readers.append(reader)
        return reader

    outcome = simulate(parse(to_toml(table), "editing.toml"), s.seed, make=make, watch=meter.saw)
    missed = outcome.violation is not None and outcome.violation.kind == "lost" and TRIED[s.variant][1] == "off"
    if outcome.violation is not None and not missed:  # without recovery, losses are what is measured
        raise UsageError(f"{s}: {outcome.violation}")
    frames = meter.result()
    texts = [reader.objects.document(NAME).text for reader in readers]
    wrote = sum(reader.wrote for reader in readers)
    # The text of a session's beginning is not recorded: take the longest one if everything was written.
    want = recording.final or (max(texts, key=len) if wrote == total else None)
    return {
        "transactions": total,
        "written": wrote / total,
        "seconds": max(reader.last_at for reader in readers) / 1e9,
        "operations": sum(reader.objects.stats.applied for reader in readers) / len(readers) / total,
        "same_text": sum(text == want for text in texts) / len(texts),
        "frames": frames.frames,
        "pairs": frames.pairs,
        "lost": frames.lost / max(1, frames.pairs),
        "gossip_missed": frames.gossip_missed / max(1, frames.pairs),
        "latency_ms": frames.latency_ms["mean"],
        "latency_p99_ms": frames.latency_ms["p99"],
        "asked": frames.asked,
        "answered": frames.answered,
    }


def measure(options: RunOptions) -> list[Row]:
    """The whole session (its beginning with --quick)."""
    path = options.data or recorded()
    transactions, members, seeds = (1500, 8, 2) if options.quick else (10**9, 12, 3)
    settings = [
        {"path": path, "members": members, "transactions": transactions, "variant": v, "loss": loss}
        for v in TRIED
        for loss in (QUICK if options.quick else LOSSES)
    ]
    rows = over_seeds(options, settings, seeds, ("variant", "loss"), f"{__name__}:point")
    return [{"session": "recorded" if path else "synthetic", **row} for row in rows]


def statistics(rows: list[Row]) -> Statistics:
    """Counts of whole runs are exact; shares of events have intervals."""
    by = {v: [row for row in rows if row["variant"] == v] for v in TRIED}
    usual = {v: [row for row in by[v] if row["loss"] <= USUAL] for v in ("R1", "R4")}

    def least(key: str, some: list[Row]) -> list[Estimate]:
        return [exact(_at(row), min(by_run(row, key))) for row in some]

    asking = [row for v in usual for row in by[v]]
    return {
        "stops": [exact(_at(row), max(by_run(row, "written"))) for row in by["causal"]],
        "to-the-end": least("written", [row for mine in usual.values() for row in mine]),
        "in-order": [never(_at(row), row, len(asking), "lost") for row in asking],
        "text-R1": least("same_text", usual["R1"]),
        "text-R4": least("same_text", usual["R4"]),
        "text-reliable": least("same_text", by["reliable"]),
        "written-reliable": least("written", by["reliable"]),
    }


def _at(row: Row) -> str:
    return f"{LABELS[row['variant']]}, {row['loss']:.0%} loss, {row['seeds']} runs"


def note(rows: list[Row]) -> str:
    """Which session it was."""
    synthetic = (
        "a synthetic session; --data FILE takes a recorded one (.json or .json.gz, as examples/replay_editing.py)"
    )
    return "" if rows[0]["session"] == "recorded" else synthetic


def draw(rows: list[Row]) -> Any:
    """Latency, share of the session written, share of members with the recorded text."""
    figure, axes = panels(
        "A recorded editing session as load: every author publishes when it has what it had then",
        ("share of messages lost", "latency of a frame (ms, mean)"),
        ("share of messages lost", "share of the session written"),
        ("share of messages lost", "share of members with the recorded text"),
    )
    curves(axes, rows, "loss", ("latency_ms", "written", "same_text"), "variant", {v: LABELS[v] for v in TRIED})
    from_zero(*axes)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(TRIED), fontsize=8)
    return figure


STUDY = Study(measure, statistics, draw, note)
