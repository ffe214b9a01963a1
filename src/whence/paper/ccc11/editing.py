"""A recorded editing session as the load: its authors publish what they wrote, when they have what they had then.

The authors are the coordinators, the others read along. In each round an author publishes, in one frame, what it
wrote next (`PER_ROUND` transactions at most) as far as its past is there: the load follows the recorded causality, not
a distribution. In the end everybody's document should have the recorded text. The fanout is 2, below what so many
members should have: there is something to recover.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec

from whence import ports
from whence.clock import Frame, MemberId, address_of
from whence.config import Config
from whence.errors import UsageError
from whence.objects import Objects
from whence.objects.kernel import events_of
from whence.objects.replay import NAME, Author, Recording, load
from whence.paper.ccc11.evaluation import VARIANTS
from whence.paper.ccc11.fig5 import NAMES
from whence.paper.ccc11.seeds import COLOURS, over_seeds, panels
from whence.paper.frame import Claim, Context, Outcome, Row
from whence.sim.meter import Meter, Metered
from whence.sim.run import run as simulate
from whence.sim.scenario import parse
from whence.sim.settings import to_toml

PER_ROUND = 16
ROUND_MS = 100
LOSSES, QUICK = (0.0, 0.05, 0.15, 0.3), (0.0, 0.15)
TRIED = ("causal", "R1", "R4")
"""Gossip alone hands out operations before what they build on: no text comes of that."""
NEVER = 1 << 62
SKIPPED = (
    "skipped: it needs a concurrent editing trace (.json or .json.gz, see examples/replay_editing.py): --data FILE"
)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    path: str
    members: int
    transactions: int
    variant: str
    loss: float
    seed: int = 0


class _Reader(Metered):
    """A member with the document; an author also writes its part."""

    objects: Objects
    author: Author | None
    next_at: int = 0

    def handle(self, event: ports.Input, now: int) -> list[ports.Output]:
        outs = super().handle(event, now)
        for out in outs:
            if type(out) is ports.Deliver and isinstance(out.frame, Frame):
                for happened in events_of(out.frame, out.over_gap):
                    self.objects.apply(happened)
                    if self.author is not None:
                        self.author.hear(happened)
        author = self.author
        if author is not None and now >= self.next_at and self.may_publish and not isinstance(event, ports.Publish):
            try:
                payloads = author.write(PER_ROUND)
            except UsageError:  # its text lacks what was lost on the way: what it wrote then has no place in it now
                payloads, self.next_at = [], NEVER
            if payloads:
                self.next_at = now + ROUND_MS * 10**6
                outs = [*outs, *self.handle(ports.Publish(tuple(payloads)), now)]
        return outs


def beginning(recording: Recording, transactions: int) -> Recording:
    """About so many transactions from its beginning, with all of their past; then the final text is not known."""
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


def point(setting: Mapping[str, Any]) -> dict[str, Any]:
    """A runner: replay it once."""
    s = msgspec.convert(dict(setting), Setting)
    recording = beginning(load(s.path), s.transactions)
    authors = len(recording.authors)
    total = sum(map(len, recording.authors))
    order, recovery = VARIANTS[s.variant]
    # A turn takes a PrCast, and recovery where gossip lost it; a lost event that is not recovered stops its readers.
    rounds = 60 + 2 * total // PER_ROUND
    table = {
        "members": s.members,
        "round": f"{ROUND_MS}ms",
        "duration": f"{rounds}r",
        "settle": "60r",
        "network": {"latency": "normal", "mean": "10ms", "sd": "2ms", "loss": s.loss},
        "cluster": {
            "tickets": authors,
            "coordinators": authors,
            "order": order,
            "recovery": recovery,
            "k": 4,
            "fanout": 2,
            "termination": 5,
        },
    }
    meter = Meter(0, rounds * ROUND_MS * 10**6, 20 * ROUND_MS * 10**6, sizes=True)
    readers: list[_Reader] = []

    def make(me: MemberId, config: Config, rng: random.Random, checkpoint: bytes | None) -> _Reader:
        reader = meter.enter(_Reader(me, config, rng, checkpoint))
        reader.objects = Objects()
        index = int(address_of(me)[1:])
        reader.author = Author(recording, index, me) if index < authors else None
        readers.append(reader)
        return reader

    outcome = simulate(parse(to_toml(table), "editing.toml"), s.seed, make=make)
    missed = outcome.violation is not None and outcome.violation.kind == "lost" and recovery == "off"
    if outcome.violation is not None and not missed:  # what gossip misses and nobody asks for is what is measured
        raise UsageError(f"{s}: {outcome.violation}")
    frames = meter.result()
    texts = [reader.objects.document(NAME).text for reader in readers]
    want = recording.final or max(texts, key=len)
    return {
        "transactions": total,
        "written": sum(len(todo) if a.done else 0 for a, todo in _authors(readers, recording)) / total,
        "operations": sum(reader.objects.stats.applied for reader in readers) / len(readers) / total,
        "same_text": sum(text == want for text in texts) / len(texts),
        "frames": frames.frames,
        "lost": frames.lost / max(1, frames.pairs),
        "gossip_missed": frames.gossip_missed / max(1, frames.pairs),
        "latency_ms": frames.latency_ms["mean"],
        "latency_p99_ms": frames.latency_ms["p99"],
        "asked": frames.asked,
        "answered": frames.answered,
    }


def _authors(readers: list[_Reader], recording: Recording) -> list[tuple[Author, list[Any]]]:
    found = [reader.author for reader in readers if reader.author is not None]
    return list(zip(found, recording.authors, strict=True))


def run(context: Context) -> Outcome:
    """The whole session (its beginning with --quick), read along by ten."""
    if not context.data:
        return Outcome([], [], None, SKIPPED)
    transactions, members, seeds = (1500, 8, 1) if context.quick else (10**9, 12, 3)
    settings = [
        {"path": context.data, "members": members, "transactions": transactions, "variant": v, "loss": loss}
        for v in TRIED
        for loss in (QUICK if context.quick else LOSSES)
    ]
    rows = over_seeds(context, f"{__name__}:point", settings, seeds, ("variant", "loss"))
    return Outcome(rows, claims(rows), draw(rows))


def claims(rows: list[Row]) -> list[Claim]:
    """What a user wants of it."""
    by = {v: [row for row in rows if row["variant"] == v] for v in TRIED}
    keys = ("loss", "lost", "same_text", "operations", "latency_ms", "latency_p99_ms")
    shown = {v: [{k: row[k] for k in keys} for row in mine] for v, mine in by.items()}
    clean = [row for row in rows if row["loss"] == 0]
    usual = [row for v in ("R1", "R4") for row in by[v] if row["loss"] <= 0.05]
    return [
        Claim("without loss everybody ends with the same text", all(row["same_text"] == 1 for row in clean), shown),
        Claim(
            "with recovery, and up to 5 % loss, everybody ends with the same text",
            all(row["same_text"] == 1 for row in usual),
            shown,
        ),
        Claim(
            "recovery loses no more than none, at every loss",
            all(a["lost"] <= b["lost"] for v in ("R1", "R4") for a, b in zip(by[v], by["causal"], strict=True)),
            shown,
        ),
    ]


def draw(rows: list[Row]) -> Any:
    """Latency and texts."""
    figure, axes = panels(
        "A recorded editing session as load: every author publishes when it has what it had then",
        ("messages lost (%)", "latency of a frame (ms, mean)"),
        ("messages lost (%)", "members with the final text (%)"),
    )
    losses = sorted({row["loss"] for row in rows})
    width = 0.25
    for i, variant in enumerate(TRIED):
        mine = [row for row in rows if row["variant"] == variant]
        x = [losses.index(row["loss"]) + (i - 1) * width for row in mine]
        for one, key, scale in ((axes[0], "latency_ms", 1), (axes[1], "same_text", 100)):
            y = [row[key] * scale for row in mine]
            error = [row[f"{key}_error"] * scale for row in mine]
            one.bar(x, y, width, yerr=error, capsize=2.5, color=COLOURS[i + 1], label=NAMES[variant])
    for one in axes:
        one.set_xticks(range(len(losses)), [f"{100 * loss:g}" for loss in losses])
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(TRIED), fontsize=8)
    return figure
