"""The page: one self-contained HTML file, with light and dark colours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path

import msgspec

from whence.audit.judge import PROMISES, Finding
from whence.audit.judge.promises import NAMES, Verdict
from whence.audit.report import charts
from whence.audit.report.facts import Facts, Overview
from whence.errors import TraceError
from whence.files import write_whole

FIRST = 5
"""Findings shown without unfolding."""


def write(facts: Facts, path: Path) -> None:
    """Write the page; the file is renamed when it is complete."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, render(facts))
    except OSError as error:
        raise TraceError(f"{path}: the page cannot be written: {error.strerror or error}") from None


def render(facts: Facts) -> str:
    """The page as text."""
    assets = files("whence.audit.report")
    page = assets.joinpath("page.html").read_text(encoding="utf-8")
    whole = facts.overview if facts.overview is not None and facts.overview.worst else None
    # No "<" inside the script element: an event's name could end it.
    data = msgspec.json.encode(facts.diagram).decode().replace("<", "\\u003c")
    parts = {
        "title": escape(facts.title),
        "style": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "script": assets.joinpath("page.js").read_text(encoding="utf-8"),
        "data": data,
        "verdict": _verdict(facts) if whole is None else _total(whole),
        "about": escape(facts.about) if whole is None else f"audited: {whole.runs:,} runs",
        "overview": _overview(facts),
        "cards": _cards(facts),
        "findings": _findings(facts),
        "latency": charts.latency(facts.latency_ms),
        "over_time": charts.over_time(facts.curves, facts.seconds, facts.marks),
        "ring": charts.ring(facts.tenures, facts.seconds, facts.marks),
        "verdicts": _verdicts(facts),
        "marks": _marks(facts),
        "recovery": _recovery(facts),
        "charts": _charts(facts),
        "part": "" if facts.diagram.whole else "The run has more steps than the diagram holds: this is a part of it.",
        "command": f"<p>Made by <code>{escape(facts.command)}</code></p>" if facts.command else "",
    }
    # All at once: a value that looks like a placeholder is not replaced.
    return re.sub(r"<!--(\w+)-->", lambda found: parts[found[1]], page)


def _charts(facts: Facts) -> str:
    """Which counts are not of the whole run."""
    if facts.found.steps <= facts.steps:
        return ""
    return (
        '<p class="hint" id="charts-of">Deliveries, losses, verdicts and violations are of the whole run. The '
        f"diagram, the charts and the other counts are of {facts.steps:,} of its {facts.found.steps:,} steps.</p>"
    )


def _verdict(facts: Facts) -> str:
    delivered, inverted = facts.found.verdicts.total(), facts.found.verdicts["inverted"]
    unsure = ""
    if facts.found.doubts:
        unsure = f"the trace of {_n(facts.found.doubts, 'member')} is incomplete"
    elif facts.overview is not None and facts.overview.runs == 1:
        unsure = facts.overview.unsure
    said = (
        f"{_n(delivered, 'delivery', 'deliveries')} of {_n(sum(facts.curves['published']), 'event')} at "
        f"{_n(len(facts.diagram.lanes), 'member')} in {charts.span(facts.seconds * 1000)}"
    )
    if facts.found.steps > facts.steps:  # of a part of the run, neither all its events nor all its time are known
        said = _n(delivered, "delivery", "deliveries")
    return _headline(facts.found.violations, delivered, inverted, unsure, said)


def _total(all_: Overview) -> str:
    """The verdict over all runs."""
    broken = sum(line.violations > 0 for line, _ in all_.worst)
    said = ", ".join(f"{number:,} {name}" for name, number in all_.counts.items() if number)
    said += f"; violations in {_n(broken, 'run')}" if broken else ""
    delivered, inverted = all_.counts.get("deliveries", 0), all_.counts.get("inversions", 0)
    return _headline(sum(all_.violations.values()), delivered, inverted, all_.unsure, said)


def _headline(violations: int, delivered: int, inverted: int, unsure: str, said: str) -> str:
    """In green only where everything was judged, and nothing came before its cause."""
    if violations:
        kind, text = "bad", f"Order broke: {_n(violations, 'violation')}"
    elif not delivered:
        kind, text = "empty", "Nothing was delivered"
    elif unsure:
        kind, text = "empty", f"No violation found; {unsure}"
    elif inverted:
        kind, text = "empty", f"No promise was broken; {_n(inverted, 'inversion')} where no causal order was asked for"
    else:
        kind, text = "good", "Order held: every promise was kept"
    return f'<p class="verdict {kind}">{escape(text)}</p><p class="said">{escape(said)}.</p>'


def _overview(facts: Facts) -> str:
    """All runs, the worst first, and what is wrong in them; then the heading of the one run below."""
    all_ = facts.overview
    if all_ is None or not all_.worst:
        return f'<p><a href="{escape(all_.back)}">All runs</a></p>' if all_ is not None and all_.back else ""
    rules = [[rule, f"{n:,}"] for rule, n in sorted(all_.violations.items(), key=lambda rule: -rule[1])]
    lines = [
        [
            f'<a href="{escape(page)}">{escape(line.run)}</a>' if page else escape(line.run),
            escape(line.cluster),
            *(f"{n:,}" for n in line[:3]),
        ]
        for line, page in all_.worst
    ]
    more = all_.runs - len(lines)
    rest = f"<p class='hint'>and {more:,} more, none of them worse; all are in the tables.</p>" if more > 0 else ""
    return (
        f"<section id='runs'><h2>Runs, the worst first</h2>{_table(['rule', 'violations'], rules) if rules else ''}"
        f"{_table(['run', 'cluster', 'violations', 'in doubt', 'deliveries'], lines, as_is=True)}{rest}</section>"
        f"<h2 id='run'>The worst of them</h2><p class='about'>{escape(facts.about)}</p>{_verdict(facts)}"
    )


def _cards(facts: Facts) -> str:
    late = facts.latency_ms
    half = charts.span(late[len(late) // 2]) if late else "-"
    worst = charts.span(late[min(len(late) - 1, int(len(late) * 0.99))]) if late else "-"
    promised = [order for order, promise in PROMISES.items() if Verdict.INVERTED in promise.forbids]
    broken = sum(n.get("inverted", 0) for order, n in facts.found.by_order.items() if order in promised)
    other = facts.found.verdicts["inverted"] - broken
    where = "at members that asked for causal order" + f"; {other:,} at others" * bool(other)
    cards = [
        ("published", f"{sum(facts.curves['published']):,}", ""),
        ("delivered", f"{facts.found.verdicts.total():,}", ""),
        ("lost", f"{facts.found.lost:,}", "never came to a member that was there all the time"),
        ("recovered", f"{sum(facts.curves['recovered']):,}", "lost by gossip, pulled back from a peer"),
        ("inversions", f"{broken:,}", where),
        ("latency, half within", half, f"99 % within {worst}" if late else ""),
    ]
    return "".join(
        f'<div class="card{" alarm" if name == "inversions" and broken else ""}"><dt>{name}</dt><dd>{value}</dd>'
        f"<small>{note}</small></div>"
        for name, value, note in cards
    )


def _findings(facts: Facts) -> str:
    if not facts.found.violations:
        return ""
    items = [_finding(f) for f in facts.found.findings]
    first = f"<ol>{''.join(items[:FIRST])}</ol>"
    if len(items) > FIRST:
        first += (
            f"<details><summary>{len(items) - FIRST} more</summary>"
            f'<ol start="{FIRST + 1}">{"".join(items[FIRST:])}</ol></details>'
        )
    more = facts.found.violations - len(items)
    rest = f"<p>and {more:,} that are not listed.</p>" if more > 0 else ""
    return f'<section id="findings"><h2>What broke</h2>{first}{rest}</section>'


def _finding(finding: Finding) -> str:
    button = (
        f' <button type="button" class="show" data-event="{escape(finding.event)}" '
        f'data-member="{escape(finding.member)}">show it in the diagram</button>'
        if finding.event
        else ""
    )
    return f"<li><b>{escape(finding.rule)}</b> {escape(finding.sentence)}{button}</li>"


def _verdicts(facts: Facts) -> str:
    orders = facts.found.by_order
    if not orders:
        return "<p class='none'>The deliveries of this run were not judged.</p>"
    seen = [v for v in NAMES if v == "in order" or any(n.get(v) for n in orders.values())]
    rows = [[order, *(f"{counts.get(v, 0):,}" for v in seen)] for order, counts in sorted(orders.items())]
    return _table(["promised", *seen], rows)


def _marks(facts: Facts) -> str:
    if not facts.marks:
        return "<p class='none'>Nothing was done to this cluster.</p>"
    rows = [[charts.span(m.at_s * 1000), m.member, m.what] for m in facts.marks[:200]]
    return _table(["when", "member", "what"], rows)


def _recovery(facts: Facts) -> str:
    rows = [
        ["asked for what was missing", f"{facts.asked:,}"],
        ["events that came back", f"{sum(facts.curves['recovered']):,}"],
        ["ranges given up", f"{facts.given_up:,}"],
        *([f"dropped: {reason or 'no reason given'}", f"{n:,}"] for reason, n in sorted(facts.dropped.items())),
    ]
    return _table(["what", "how often"], rows)


def _table(head: list[str], rows: Iterable[list[str]], as_is: bool = False) -> str:
    """`as_is`: cells are HTML."""
    told = str if as_is else escape
    body = "".join("<tr>" + "".join(f"<td>{told(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    cells = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    return f'<div class="scroll"><table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _n(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
