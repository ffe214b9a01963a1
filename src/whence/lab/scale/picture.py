"""A picture of one event on its way to all members: a tree in polar coordinates, time outwards.

Each member is a point. Its distance from the middle is the time at which it first had the event; its angle lies in the
sector of the member that brought it. Sectors are as wide as what they bring the event to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from whence.errors import ConfigError
from whence.lab.scale.dissemination import GossipRun, load_kernels
from whence.lab.scale.flood import AGE, AGES, GONE, NEVER, delay, phase_of, retarget, targets
from whence.lab.scale.gossip import GossipSettings
from whence.lab.scale.jit import kernel, wide
from whence.lab.scale.random import I32

PIXELS = 1400
NIGHT = "#0b0d14"
COLOURS = ("#ffffff", "#ffe08a", "#ffb347", "#ff7e5f", "#d6538f", "#8f5bd6", "#4f7be8", "#3fb8d8", "#4fd8a8", "#a8e070")
"""One for each hop, the publisher's first; then again from the second on."""


@kernel
def bearers(at: int, key: Any, links: Any, manner: Any, came: Any, state: Any) -> Any:
    """Who brought it: the copies once more, to see which was the first."""
    least, _, lost, jitter, base = links
    fanout, termination, pause, _, forget, phase = manner
    found, to, words = np.full(len(came), -1, np.int32), np.empty(64, np.int64), np.empty(64, np.uint32)
    for p in range(len(came)):
        if came[p] == NEVER:
            continue
        when, age = wide(came[p] >> AGE), wide(came[p] & AGES)
        tick = pause - (at + when - phase_of(p, phase, pause)) % pause if pause else 0
        for k in range(termination - age if pause else int(age < termination)):
            targets(p, k, key, manner, len(came), to, words)
            for j in range(fanout):
                q = wide(to[j])
                if forget and state[q] & GONE:
                    q = retarget(q, p, words[j], key, state)
                time = when + tick + k * pause + delay(words[j], p, q, least, jitter, base)
                if words[j] >= lost and came[q] == (time << AGE) | (age + k + 1):
                    found[q] = p
    return found


@kernel
def sectors(order: Any, bearer: Any) -> Any:
    """The angle of each member, as a share of the circle; `order`: by arrival."""
    size, begin, angle = np.ones(len(bearer)), np.zeros(len(bearer)), np.zeros(len(bearer))
    for i in range(len(order) - 1, 0, -1):
        size[max(0, bearer[order[i]])] += size[order[i]]
    total = size[order[0]]
    for i in range(len(order)):
        p = order[i]
        angle[p] = begin[p] + size[p] / total / 2
        above = bearer[p]
        if above >= 0:
            angle[p] = begin[above] + size[p] / total / 2
            begin[p] = begin[above]
            begin[above] += size[p] / total
    return angle


def bearers_of(run: GossipRun) -> tuple[I32, I32]:
    """Of a run's first event: when it came to each member, and who brought it (in trees, its parent)."""
    came, state, _ = run.arrivals(0, 1)
    if run.grove is None:
        return came[0], bearers(int(run.times.at[0]), run.keys[0], run.links, run.manner, came[0], state[0])
    grove, tree = run.grove, run.tree[0]
    bearer = grove.order[tree][grove.above[tree][grove.place[tree]]]
    bearer[run.times.owner[0]] = -1
    return came[0], bearer


def draw(settings: GossipSettings, file: Path) -> None:
    """The first event of a run."""
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure

    if file.suffix not in (".png", ".svg", ".pdf"):
        raise ConfigError(f"plot: {file} is no .png, .svg or .pdf")
    load_kernels(settings.mode == "tree")
    run = GossipRun(settings)
    came, bearer = bearers_of(run)
    order = np.argsort(came, kind="stable")[: int((came != NEVER).sum())]
    angle = 2 * np.pi * sectors(order, bearer)[order]
    time, hop = (came[order] >> AGE) / 1000, came[order] & AGES
    edge = float(np.quantile(time, 0.9999)) * 1.03
    canvas = np.zeros((PIXELS, PIXELS, 3))
    for age in range(int(hop.max()) + 1):
        mine = hop == age
        x, y = time[mine] * np.cos(angle[mine]), time[mine] * np.sin(angle[mine])
        density, _, _ = np.histogram2d(y, x, PIXELS, ((-edge, edge), (-edge, edge)))
        colour = to_rgb(COLOURS[age if age < len(COLOURS) else 1 + (age - 1) % (len(COLOURS) - 1)])
        canvas += np.log1p(density)[:, :, None] * np.array(colour) * (1.1 - 0.5 * min(1, mine.sum() / len(order)))
    figure = Figure(figsize=(9.2, 10), facecolor=NIGHT)
    axes = figure.add_axes((0.02, 0.0, 0.96, 0.885))
    axes.imshow(
        np.maximum(np.clip(canvas / 1.6, 0, 1) ** 0.8, to_rgb(NIGHT)), extent=(-edge, edge, -edge, edge), origin="lower"
    )
    axes.axis("off")
    _lines(axes, order, bearer, angle, time, hop)
    share = f"{len(order):,} of {settings.members:,} members"
    how = f"{settings.mode}, fanout {run.manner.fanout}" if run.grove is None else "along a tree"
    figure.text(0.5, 0.955, f"One event reaches {share}", color="white", fontsize=17, ha="center")
    marks = ", ".join(
        f"{name} {np.quantile(time, q):.0f} ms" for name, q in (("half", 0.5), ("99 %", 0.99), ("last", 1))
    )
    said = f"{how}, loss {settings.loss:.0%}: {marks}. Distance: time of arrival; colour: hops"
    figure.text(0.5, 0.92, said, color="#c8ccd8", fontsize=10.5, ha="center")
    figure.savefig(file, dpi=160, facecolor=figure.get_facecolor())


def _lines(axes: Any, order: Any, bearer: Any, angle: Any, time: Any, hop: Any) -> None:
    """The first hops, as lines from who brought the event to who got it."""
    where = np.zeros(len(bearer), np.int64)
    where[order] = np.arange(len(order))
    x, y = time * np.cos(angle), time * np.sin(angle)
    for age, width in ((1, 1.1), (2, 0.5), (3, 0.18)):
        mine = np.flatnonzero(hop == age)[:6000]
        above = where[bearer[order[mine]]]
        xs, ys = np.full((2, len(mine) * 3), np.nan)
        xs[0::3], xs[1::3], ys[0::3], ys[1::3] = x[above], x[mine], y[above], y[mine]
        axes.plot(xs, ys, color=COLOURS[age], linewidth=width, alpha=0.8)
