"""The page of a check: every verdict in a table, and the cycle of each violation as a picture with its story.

In a picture a row is a session, a box is a transaction with the operations that matter, and an arrow is an edge of the
cycle with its reason. Dashed arrows are the way that puts a writer into its reader's past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from os.path import commonpath
from pathlib import PurePath
from typing import NamedTuple

from whence.audit.history.levels import PATTERNS
from whence.audit.history.model import INIT
from whence.audit.history.report import Anomaly, CycleEdge, HistoryReport
from whence.audit.history.story import story

DRAWN = 50
"""Pictures on one page. The tables have the rest."""
OPS = 6
"""Operations shown in a box."""
CHARS = 26
WIDE, LINE, GAP_X, GAP_Y, LEFT = 200, 18, 110, 60, 110
KINDS = {"so": "session order", "wr": "reads from", "co": "must commit before", "vo": "version order of the list"}
"""Kind of an edge, which is its class in the style -> what it means."""


class Box(NamedTuple):
    """Where a transaction is drawn."""

    x: float
    y: float
    lines: tuple[str, ...]

    @property
    def high(self) -> int:
        return LINE * (len(self.lines) + 1) + 14


def page(reports: Sequence[HistoryReport]) -> str:
    """HTML without anything from elsewhere."""
    wrong = [report for report in reports if report.counterexample() is not None]
    parts = [_HEAD, "<h1>Client histories</h1>", f"<p>{_summary(reports)}</p>", _table(reports)]
    for number, report in enumerate(reports):
        found = report.counterexample()
        if found is None or report not in wrong[:DRAWN]:
            continue
        parts.append(f'<h2 id="h{number}">{escape(report.file)}</h2>')
        parts.append(f"<p>{escape(found.pattern)}: {escape(PATTERNS[found.pattern][1])}.</p>")
        if found.edges:
            parts.append(f'<div class="picture">{svg(report, found)}</div>')
            parts.append(_legend(found))
        parts.append(f"<pre>{escape(story(report))}</pre>")
    if len(wrong) > DRAWN:
        parts.append(f"<p>{len(wrong) - DRAWN:,} more are violated; their stories are in findings.jsonl.</p>")
    return "\n".join([*parts, "</body></html>", ""])


def _summary(reports: Sequence[HistoryReport]) -> str:
    bad = sum(not report.holds for report in reports)
    many = f"{len(reports):,} {'history' if len(reports) == 1 else 'histories'}"
    return f"{many}: every level asked for holds." if not bad else f"{many}, {bad:,} violated."


def _table(reports: Sequence[HistoryReport]) -> str:
    common = f"{commonpath([PurePath(report.file).parent for report in reports])}/"
    levels = list(dict.fromkeys(level for report in reports for level in report.levels))
    head = "".join(f"<th>{level}</th>" for level in levels)
    rows = [f"<tr><th>history</th><th>operations</th><th>sessions</th>{head}<th>found</th></tr>"]
    for number, report in enumerate(reports):
        name = escape(report.file.removeprefix(common))
        cells = "".join(_cell(report.levels.get(level)) for level in levels)
        found = ", ".join(f"{escape(pattern)}&nbsp;{count:,}" for pattern, count in report.patterns.items())
        link = f'<a href="#h{number}">{name}</a>' if report.counterexample() is not None else name
        rows.append(
            f'<tr><td>{link}</td><td class="n">{report.operations:,}</td><td class="n">{report.sessions:,}</td>'
            f'{cells}<td class="found">{found}</td></tr>'
        )
    return f"<table>{''.join(rows)}</table>"


def _cell(holds: bool | None) -> str:
    if holds is None:
        return "<td>-</td>"
    return '<td class="holds">holds</td>' if holds else '<td class="violated">violated</td>'


def _legend(found: Anomaly) -> str:
    kinds = dict.fromkeys(step.kind for step in found.steps())
    items = (f'<span class="{kind}">{kind}</span> {KINDS[kind]}' for kind in kinds)
    return f'<p class="legend">{" &nbsp; ".join(items)}; dashed: how the writer came into the reader&#39;s past</p>'


def svg(report: HistoryReport, found: Anomaly) -> str:
    """The cycle as a picture."""
    boxes, lanes = _places(report, found)
    width = max(box.x for box in boxes.values()) + WIDE + 40
    height = max(box.y + box.high for box in boxes.values()) + 40
    drawn = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img">', _MARKERS]
    for session, y in lanes.items():
        drawn.append(f'<line class="lane" x1="10" y1="{y:.0f}" x2="{width - 10:.0f}" y2="{y:.0f}"/>')
        drawn.append(f'<text class="session" x="12" y="{y - 6:.0f}">{escape(_short(session, 14))}</text>')
    drawn += _arrows(found, boxes)
    for t, box in boxes.items():
        drawn.append(f'<rect class="box" x="{box.x:.0f}" y="{box.y:.0f}" width="{WIDE}" height="{box.high}" rx="6"/>')
        for i, line in enumerate((report.name(t), *box.lines)):
            kind = "name" if i == 0 else "op"
            drawn.append(
                f'<text class="{kind}" x="{box.x + 10:.0f}" y="{box.y + LINE * (i + 1) + 2:.0f}">{escape(line)}</text>'
            )
    return "".join([*drawn, "</svg>"])


def _places(report: HistoryReport, found: Anomaly) -> tuple[dict[int, Box], dict[str, float]]:
    """Boxes in the rows of their sessions, causes to the left of effects where that is possible."""
    keys = {step.key for step in found.steps()}
    column = _columns(found)
    rows: dict[str, list[int]] = {}
    for t in sorted(found.nodes(), key=lambda t: (_session(report, t), t)):
        rows.setdefault(_session(report, t), []).append(t)
    boxes: dict[int, Box] = {}
    lanes: dict[str, float] = {}
    y = 50.0
    for session, here in rows.items():
        taken = -1
        for t in here:
            taken = max(taken + 1, column[t])
            ops = [str(op) for op in report.shown.get(t, []) if op.key in keys]
            more = [f"and {len(ops) - OPS} more"] if len(ops) > OPS else []
            lines = tuple(_short(line, CHARS) for line in [*ops[:OPS], *more])
            boxes[t] = Box(LEFT + taken * (WIDE + GAP_X), y, lines)
        lanes[session] = y + 20
        y += max(boxes[t].high for t in here) + GAP_Y
    return boxes, lanes


def _session(report: HistoryReport, t: int) -> str:
    return "initial state" if t == INIT else f"session {report.place(t)[0]}"


def _columns(found: Anomaly) -> dict[int, int]:
    """The longest way to each transaction; a cycle of causes would have no end, so it ends at their number."""
    column = dict.fromkeys(found.nodes(), 0)
    for _ in column:
        for step in found.steps():
            if step.kind != "co":
                column[step.dst] = min(len(column) - 1, max(column[step.dst], column[step.src] + 1))
    return column


def _arrows(found: Anomaly, boxes: dict[int, Box]) -> list[str]:
    drawn: list[str] = []
    between: Counter[frozenset[int]] = Counter()
    for step in {(step.src, step.dst, step.kind, step.key): step for step in reversed(found.steps())}.values():
        pair = frozenset((step.src, step.dst))
        between[pair] += 1
        label = step.kind if step.key is None else f"{step.kind} {step.key}"
        dashed = "" if isinstance(step, CycleEdge) else ' stroke-dasharray="5 4"'
        drawn.append(_arrow(boxes[step.src], boxes[step.dst], step.kind, _short(label, 20), dashed, between[pair]))
    return drawn


def _arrow(a: Box, b: Box, kind: str, label: str, dashed: str, bend: int) -> str:
    """A curve from side to side; several between the same boxes bend more and more."""
    (x1, y1), (x2, y2) = _ends(a, b)
    off = (36 + 26 * (bend - 1)) * (1 if x2 >= x1 else -1) if bend > 1 or a.y == b.y else 14
    cx, cy = (x1 + x2) / 2 + (off if a.x == b.x else 0), (y1 + y2) / 2 - (0 if a.x == b.x else off)
    mx, my = (x1 + 2 * cx + x2) / 4, (y1 + 2 * cy + y2) / 4
    wide = 7.2 * len(label) + 8
    return (
        f'<path class="{kind}" d="M{x1:.0f},{y1:.0f} Q{cx:.0f},{cy:.0f} {x2:.0f},{y2:.0f}"{dashed} '
        f'marker-end="url(#{kind})"/>'
        f'<rect class="back" x="{mx - wide / 2:.0f}" y="{my - 10:.0f}" width="{wide:.0f}" height="18"/>'
        f'<text class="label {kind}" x="{mx:.0f}" y="{my + 4:.0f}">{escape(label)}</text>'
    )


def _ends(a: Box, b: Box) -> tuple[tuple[float, float], tuple[float, float]]:
    if a.x < b.x:
        return (a.x + WIDE, a.y + a.high / 2), (b.x - 2, b.y + b.high / 2)
    if a.x > b.x:
        return (a.x, a.y + a.high / 2 + 8), (b.x + WIDE + 2, b.y + b.high / 2 + 8)
    x = a.x + WIDE / 2
    return ((x, a.y + a.high), (x, b.y - 2)) if a.y < b.y else ((x + 30, a.y), (x + 30, b.y + b.high + 2))


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


_MARKERS = "<defs>{}</defs>".format(
    "".join(
        f'<marker id="{kind}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path class="{kind} tip" d="M0,0 L10,5 L0,10 z"/></marker>'
        for kind in KINDS
    )
)

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Client histories</title>
<style>
:root { color-scheme: light dark; --ink: #1d2330; --paper: #ffffff; --soft: #5b6475; --line: #d8dce4; --box: #f5f7fa;
  --so: #5b6475; --wr: #1f6feb; --co: #c62828; --vo: #7b3fb5; --good: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --paper: #14171d; --soft: #9aa4b5; --line: #333a46;
  --box: #1e232c; --so: #9aa4b5; --wr: #6ea8ff; --co: #ff7b72; --vo: #c79bff; --good: #56d364; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 1200px; padding: 0 1rem; }
table { border-collapse: collapse; } th, td { padding: .3rem .8rem; border-bottom: 1px solid var(--line);
  text-align: left; } td.n { text-align: right; }
td:first-child { overflow-wrap: anywhere; min-width: 16rem; } td.found { font-size: 13px; color: var(--soft); }
.holds { color: var(--good); } .violated { color: var(--co); font-weight: 600; }
pre { background: var(--box); padding: 1rem; overflow-x: auto; border-radius: 6px; font-size: 13px; }
.picture { overflow-x: auto; } svg { max-width: 100%; height: auto; }
svg text { font: 13px ui-monospace, monospace; fill: var(--ink); }
.lane { stroke: var(--line); } .session { fill: var(--soft) !important; }
.box { fill: var(--box); stroke: var(--soft); }
.name { font-weight: 700 !important; } .back { fill: var(--paper); } .label { text-anchor: middle; }
.so { --kind: var(--so); } .wr { --kind: var(--wr); } .co { --kind: var(--co); } .vo { --kind: var(--vo); }
path { fill: none; stroke-width: 1.8; stroke: var(--kind); } .tip { stroke: none; fill: var(--kind); }
text.label, .legend span { fill: var(--kind) !important; color: var(--kind); }
.legend { color: var(--soft); } .legend span { font-family: ui-monospace, monospace; font-weight: 700; }
</style></head><body>"""
