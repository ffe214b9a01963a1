"""The page of a check: every verdict in a table, and the cycle of each violation as a picture with its story.

In a picture a column is a session, a box is a transaction with the operations that matter, causes above effects, and an
arrow is an edge of the cycle with its reason. Dashed arrows are the way that puts a writer into its reader's past.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from os.path import commonpath
from pathlib import PurePath

from whence.audit.history.levels import PATTERNS
from whence.audit.history.model import INIT
from whence.audit.history.report import Anomaly, HistoryReport
from whence.audit.history.story import story

DRAWN = 50
"""Pictures on one page. The tables have the rest."""
CHARS = 26
"""Of a text in the picture."""
WIDE, HIGH, GAP_X, GAP_Y, BEND = 220, 50, 180, 26, 50
VERDICTS = {True: "holds", False: "violated", None: "-"}
KINDS = {"so": "session order", "wr": "reads from", "co": "must commit before", "vo": "version order of the list"}
"""Kind of an edge, which is its class in the style -> what it means."""


Place = tuple[int, int]
"""The upper left corner of the box of a transaction."""


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
        words = [VERDICTS[report.levels.get(level)] for level in levels]
        cells = "".join(f'<td class="{word}">{word}</td>' for word in words)
        found = ", ".join(f"{escape(pattern)}&nbsp;{count:,}" for pattern, count in report.patterns.items())
        link = f'<a href="#h{number}">{name}</a>' if report.counterexample() is not None else name
        rows.append(
            f'<tr><td>{link}</td><td class="n">{report.operations:,}</td><td class="n">{report.sessions:,}</td>'
            f'{cells}<td class="found">{found}</td></tr>'
        )
    return f"<table>{''.join(rows)}</table>"


def _legend(found: Anomaly) -> str:
    kinds = dict.fromkeys(step.kind for step in found.steps())
    items = (f'<span class="{kind}">{kind}</span> {KINDS[kind]}' for kind in kinds)
    return f'<p class="legend">{" &nbsp; ".join(items)}; dashed: how the writer came into the reader&#39;s past</p>'


def svg(report: HistoryReport, found: Anomaly) -> str:
    """The cycle as a picture."""
    history = report.history
    session = {t: "initial state" if t == INIT else f"session {history.place(t)[0]}" for t in sorted(found.nodes())}
    lanes = {name: 20 + i * (WIDE + GAP_X) for i, name in enumerate(dict.fromkeys(session.values()))}
    places = {t: (lanes[session[t]], 40 + i * (HIGH + GAP_Y)) for i, t in enumerate(_causes_first(found, session))}
    width, height = 20 + len(lanes) * (WIDE + GAP_X), 40 + len(places) * (HIGH + GAP_Y)
    drawn = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img">', _MARKERS]
    for name, x in lanes.items():
        drawn.append(f'<line class="lane" x1="{x + WIDE // 2}" y1="30" x2="{x + WIDE // 2}" y2="{height}"/>')
        drawn.append(f'<text class="session" x="{x}" y="20">{_short(name)}</text>')
    drawn += _arrows(found, places)
    keys = {step.key for step in found.steps()}
    for t, (x, y) in places.items():
        ops = "  ".join(str(op) for op in history.ops(t) if op.key in keys)
        drawn.append(f'<rect class="box" x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6"/>')
        drawn.append(f'<text class="name" x="{x + 10}" y="{y + 20}">{escape(history.name(t))}</text>')
        drawn.append(f'<text class="op" x="{x + 10}" y="{y + 38}">{_short(ops)}</text>')
    return "".join([*drawn, "</svg>"])


def _causes_first(found: Anomaly, session: dict[int, str]) -> list[int]:
    """The transactions by the longest way to each; in a cycle of causes that has no end, so it ends at their number."""
    ways = [(step.src, step.dst) for step in found.steps() if step.kind != "co"]
    ways += [(one, other) for one, other in pairwise(session) if session[one] == session[other]]
    longest = dict.fromkeys(session, 0)
    for _ in longest:
        for src, dst in ways:
            longest[dst] = min(len(longest), max(longest[dst], longest[src] + 1))
    return sorted(session, key=lambda t: (longest[t], t))


def _arrows(found: Anomaly, places: dict[int, Place]) -> list[str]:
    drawn: list[str] = []
    between: Counter[frozenset[int]] = Counter()
    for step in {(step.src, step.dst, step.kind, step.key): step for step in reversed(found.steps())}.values():
        pair = frozenset((step.src, step.dst))
        label = step.kind if step.key is None else f"{step.kind} {step.key}"
        kind = step.kind if step in found.edges else f"{step.kind} past"
        drawn.append(_arrow(places[step.src], places[step.dst], kind, label, between[pair]))
        between[pair] += 1
    return drawn


def _arrow(a: Place, b: Place, kind: str, label: str, others: int) -> str:
    """A curve from side to side, bent away from the `others` between the same boxes."""
    x1, x2 = a[0] + WIDE * (b[0] >= a[0]), b[0] + WIDE * (b[0] <= a[0])
    y1, y2 = a[1] + HIGH // 2, b[1] + HIGH // 2
    cx, cy = (x1 + x2) // 2 + (BEND * (others + 2) if a[0] == b[0] else 0), (y1 + y2) // 2 + BEND * others
    mx, my = (x1 + 2 * cx + x2) // 4, (y1 + 2 * cy + y2) // 4
    return (
        f'<path class="{kind}" d="M{x1},{y1} Q{cx},{cy} {x2},{y2}" marker-end="url(#{kind[:2]})"/>'
        f'<text class="label {kind}" x="{mx}" y="{my + 4}">{_short(label)}</text>'
    )


def _short(text: str) -> str:
    return escape(text if len(text) <= CHARS else f"{text[: CHARS - 3]}...")


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
.name { font-weight: 700 !important; } .past { stroke-dasharray: 5 4; }
.label { text-anchor: middle; stroke: var(--paper); stroke-width: 8; stroke-dasharray: none; paint-order: stroke; }
.so { --kind: var(--so); } .wr { --kind: var(--wr); } .co { --kind: var(--co); } .vo { --kind: var(--vo); }
path { fill: none; stroke-width: 1.8; stroke: var(--kind); } .tip { stroke: none; fill: var(--kind); }
text.label, .legend span { fill: var(--kind) !important; color: var(--kind); }
.legend { color: var(--soft); } .legend span { font-family: ui-monospace, monospace; font-weight: 700; }
</style></head><body>"""
