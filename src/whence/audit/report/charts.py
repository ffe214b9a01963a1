"""Charts as SVG text: they need no script, scale to any width, and use the page's colours."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from whence.audit.report.facts import Incident, Ownership

W, LEFT, RIGHT, TOP, BOTTOM = 460, 50, 14, 12, 30
"""Narrow enough that text stays readable on a phone."""
OWNER_COLOURS = 8


def _svg(height: int, title: str, body: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {W} {height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(body)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "middle", cls: str = "tick") -> str:
    return f'<text class="{cls}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, cls: str, title: str = "") -> str:
    """`title` is the tooltip."""
    told = f"><title>{escape(title)}</title></line>" if title else "/>"
    return f'<line class="{cls}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{told}'


def _rect(cls: str, x: float, y: float, width: float, height: float, more: str = "", title: str = "") -> str:
    """`more`: attributes; `title`: the tooltip."""
    told = f"><title>{escape(title)}</title></rect>" if title else "/>"
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{cls}" x="{x:.1f}" y="{y:.1f}" {size}{more}{told}'


def ticks(top: float, most: int = 5) -> list[float]:
    """Round numbers from 0 to `top`."""
    if top <= 0:
        return [0.0]
    raw = top / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(int(top / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number for an axis tick."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    if value >= 10_000:
        return f"{value / 1e3:g}k"
    return f"{value:g}"


def span(ms: float) -> str:
    """A time with its unit."""
    for unit, much in (("s", 1000.0), ("ms", 1.0), ("µs", 1e-3)):
        if abs(ms) >= much * 0.9995:
            return f"{ms / much:.3g} {unit}"
    return f"{ms * 1e6:.3g} ns"


def _seconds_axis(seconds: float, height: int) -> tuple[list[str], float]:
    """The ticks of the axis of time, and how wide a second is."""
    scale = (W - LEFT - RIGHT) / seconds
    marks = [_text(LEFT + t * scale, height - 10, span(t * 1000) if t else "0") for t in ticks(seconds, 6)]
    return marks, scale


def _marks(marks: list[Incident], scale: float, height: int) -> list[str]:
    """A thin line per mark; marks at the same place share one line and its tooltip."""
    together: dict[tuple[int, bool], list[Incident]] = {}
    for mark in sorted(marks, key=lambda mark: not mark.fault)[:400]:
        together.setdefault((round((LEFT + mark.at_s * scale) / 2), mark.fault), []).append(mark)
    lines = []
    for (_, fault), some in together.items():
        x = LEFT + some[0].at_s * scale
        told = [f"{what} ({n} members)" if n > 1 else what for what, n in Counter(m.what for m in some).items()]
        title = f"{span(some[0].at_s * 1000)}: {'; '.join(told[:5])}"
        lines.append(_line(x, TOP, x, height - BOTTOM, "event" if fault else "event quiet", title))
    return lines


def latency(sorted_ms: list[float]) -> str:
    """A histogram of the time from publish to delivery, on a logarithmic axis."""
    if not sorted_ms:
        return "<p class='none'>Nothing was delivered to another member.</p>"
    height, count = 220, len(sorted_ms)
    least = next((ms for ms in sorted_ms if ms > 0), 0.01)  # by clocks of two machines some are below 0
    low = math.log10(least)
    high = max(math.log10(max(sorted_ms[-1], least)), low + 0.3)
    bins = [0] * 48
    for ms in sorted_ms:
        at = (math.log10(max(ms, least)) - low) / (high - low)
        bins[min(len(bins) - 1, max(0, int(at * len(bins))))] += 1
    width, floor = W - LEFT - RIGHT, height - BOTTOM
    scale = (floor - TOP - 30) / max(bins)
    body = [
        _rect("bar", LEFT + i * width / len(bins), floor - n * scale, width / len(bins) - 1, n * scale)
        for i, n in enumerate(bins)
        if n
    ]
    for power in range(math.floor(low), math.ceil(high) + 1):
        for mantissa in (1, 2, 5):
            ms = mantissa * 10.0**power
            at = (math.log10(ms) - low) / (high - low)
            if 0.02 <= at <= 0.97 and (mantissa == 1 or high - low < 2):
                body.append(_text(LEFT + at * width, height - 10, span(ms)))
    for row, (name, q) in enumerate((("p50", 0.5), ("p99", 0.99))):
        ms = sorted_ms[min(count - 1, int(q * count))]
        x = LEFT + (math.log10(max(ms, least)) - low) / (high - low) * width
        body.append(_line(x, TOP - 4 + 16 * row, x, floor, "mark"))
        anchor = "end" if x > W - 90 else "start"  # separate lines, since the labels may be close
        y = TOP + 4 + 16 * row
        body.append(_text(x + (4 if anchor == "start" else -4), y, f"{name} {span(ms)}", anchor, "note"))
    body.append(_line(LEFT, floor, W - RIGHT, floor, "axis"))
    return _svg(height, f"Latency of {count} deliveries", body)


def over_time(curves: Mapping[str, list[int]], seconds: float, marks: list[Incident]) -> str:
    """Deliveries and publishes per second; below them, dropped and recovered events."""
    if not any(curves["published"]) and not any(curves["delivered"]):
        return "<p class='none'>Nothing was published, nothing delivered.</p>"
    height, split = 240, 150
    width_s = seconds / len(curves["delivered"])
    axis, scale = _seconds_axis(seconds, height)
    body = _marks(marks, scale, height)
    top = max(curves["delivered"]) / width_s or 1.0
    for tick in ticks(top, 4):
        y = split - tick / top * (split - TOP - 6)
        body += [_line(LEFT, y, W - RIGHT, y, "grid"), _text(LEFT - 6, y + 4, short(tick), "end")]
    for name in ("delivered", "published"):
        points = " ".join(
            f"{LEFT + (i + 0.5) * width_s * scale:.1f},{split - n / width_s / top * (split - TOP - 6):.1f}"
            for i, n in enumerate(curves[name])
        )
        body.append(f'<polyline class="{name}" points="{points}"/>')
    low, floor = split + 22, height - BOTTOM
    most = max(curves["recovered"] + curves["dropped"])
    bar = max(1.0, width_s * scale / 2 - 0.5)
    for name, shift in (("recovered", 0.0), ("dropped", bar)):
        for i, n in enumerate(curves[name]):
            if n:
                size = n / most * (floor - low)
                body.append(_rect(name, LEFT + i * width_s * scale + shift, floor - size, bar, size))
    if most:
        body.append(_text(LEFT - 6, low + 8, short(most), "end"))
    body += [_line(LEFT, split, W - RIGHT, split, "axis"), _line(LEFT, floor, W - RIGHT, floor, "axis"), *axis]
    return _svg(height, "Events per second over time; below, events recovered and dropped", body)


def ring(tenures: list[Ownership], seconds: float, marks: list[Incident]) -> str:
    """Who held which ticket when: pale while granted, solid while it may publish."""
    tickets = sorted({t.ticket for t in tenures})
    if not tickets:
        return "<p class='none'>No ticket was granted.</p>"
    row, height = 26, TOP + BOTTOM + 26 * len(tickets)
    axis, scale = _seconds_axis(seconds, height)
    owners = {name: i for i, name in enumerate(dict.fromkeys(t.owner for t in tenures))}
    body = _marks(marks, scale, height)
    for i, ticket in enumerate(tickets):
        body.append(_text(LEFT - 6, TOP + i * row + 17, str(ticket), "end"))
    for tenure in tenures:
        y = TOP + tickets.index(tenure.ticket) * row + 3
        end = tenure.end_s if tenure.end_s is not None else seconds
        colour = owners[tenure.owner] % OWNER_COLOURS
        said = f"{tenure.owner}, {span(tenure.granted_s * 1000)} to {span(end * 1000)} {tenure.how}".strip()
        for begin, cls in ((tenure.granted_s, "waits"), (tenure.owner_s, "owns")):
            if begin is None:
                continue
            x, width = LEFT + begin * scale, max(1.5, (end - begin) * scale)
            body.append(_rect(f"owner{colour} {cls}", x, y, width, row - 6, ' rx="3"', said))
        if (end - tenure.granted_s) * scale > 9 * len(tenure.owner) + 8:
            body.append(_text(LEFT + tenure.granted_s * scale + 6, y + 14, tenure.owner, "start", "owner"))
        if tenure.how == "lost":
            body.append(_text(LEFT + end * scale, y + 15, "\u00d7", "middle", "lost"))
    return _svg(height, "The ticket ring over time", [*body, *axis])
