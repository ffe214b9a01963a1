"""docs/claims.md: every statement of the papers and its verdict, from the declared claims and stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib import resources

import msgspec

from whence.lab.paper.claims import PAPERS, claims, statements
from whence.lab.paper.claims.model import Claim, Point, Statement, Statistics, Status, Verdict, Wording
from whence.lab.paper.claims.named import NAMED

STORED = "results.json"
"""In `whence.lab.paper`: the results that the page was made from."""
WIDEST = 1e299
"""An interval of a single run: everything."""


class Result(msgspec.Struct, kw_only=True):
    """What one experiment found."""

    quick: bool
    seed: int
    statistics: dict[str, list[Point]]


class Results(msgspec.Struct):
    """What all experiments found."""

    experiments: dict[str, Result] = {}
    """By what to type after `whence paper`."""

    def statistics(self, experiment: str) -> Statistics:
        found = self.experiments.get(experiment)
        return found.statistics if found else {}

    def status(self, statement: Statement, claim: Claim) -> Status:
        return claim.now.judge(self.statistics(statement.experiment))

    def verdict(self, statement: Statement) -> Verdict:
        """The verdict on a statement."""
        return statement.verdict(lambda claim: self.status(statement, claim))


def stored() -> Results:
    """The results in the package."""
    path = resources.files("whence.lab.paper").joinpath(STORED)
    return msgspec.json.decode(path.read_bytes(), type=Results)


def encode(results: Results) -> bytes:
    """For the file: one line for each statistic, so that changes can be read."""
    lines = ["{"]
    lines.append('"experiments": {')
    blocks = []
    for name, result in sorted(results.experiments.items()):
        rows = [f"  {_json(key)}: {_json(points)}" for key, points in sorted(result.statistics.items())]
        head = f'{_json(name)}: {{"quick": {_json(result.quick)}, "seed": {result.seed}, "statistics": {{'
        blocks.append(head + "\n" + ",\n".join(rows) + "\n}}")
    lines.append(",\n".join(blocks) + "\n}")
    return "\n".join([*lines, "}"]).encode() + b"\n"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def rounded(points: list[Point]) -> list[Point]:
    """Six digits are enough to judge by, and make the file readable."""
    return [Point(p.at, *(float(f"{x:.6g}") for x in (p.value, p.low, p.high))) for p in points]


def figure(point: Point | None) -> str:
    """`value [low, high]`, for people."""
    if point is None:
        return "not measured"
    if point.low == point.high:
        return f"{point.value:.4g}"
    if abs(point.low) > WIDEST:
        return f"{point.value:.4g} (too few runs for an interval)"
    return f"{point.value:.4g} [{point.low:.4g}, {point.high:.4g}]"


def shown(verdict: Verdict, statement: Statement) -> str:
    """The verdict, with what it depends on."""
    return f"depends on {statement.depends}" if verdict == "depends on" else verdict


def command(statement: Statement, results: Results) -> str:
    """What to type."""
    found = results.experiments.get(statement.experiment)
    quick = " --quick" if found and found.quick else ""
    seed = f" --seed {found.seed}" if found and found.seed else ""
    return f"whence paper {statement.experiment}{quick}{seed}"


def page(results: Results) -> str:
    """The whole page."""
    lines = [HEAD.strip(), "", *_summary(results), ""]
    for title, some in PAPERS.items():
        lines += [f"## {title}", "", "| place | statement | verdict | claims, thresholds, figures | command |"]
        lines.append("|---|---|---|---|---|")
        lines += [_row(statement, results) for statement in some]
        lines.append("")
    lines += ["## Changed wordings", "", CHANGED.strip(), ""]
    lines += ["| claim | declared | wording | verdict | why it was replaced |", "|---|---|---|---|---|"]
    lines += list(_history(results))
    lines += ["", "## What the papers name and do not measure", "", "| what | where | here |", "|---|---|---|"]
    lines += [f"| {what} | {where} | {here} |" for what, where, here in NAMED]
    lines.append("")
    return "\n".join(lines)


def _summary(results: Results) -> list[str]:
    counts = Counter(results.verdict(s) for s in statements())
    head = "| " + " | ".join(counts) + " |"
    return [head, "|" + "---|" * len(counts), "| " + " | ".join(str(n) for n in counts.values()) + " |"]


def _row(statement: Statement, results: Results) -> str:
    verdict = results.verdict(statement)
    cells = [_claim(claim, statement, results) for claim in statement.claims]
    if statement.corrected:
        cells.append(f"*Corrected:* {statement.correction}")
        cells += [_claim(claim, statement, results) for claim in statement.corrected]
    if statement.note:
        cells.append(f"*Note:* {statement.note}")
    row = (
        statement.place,
        statement.says,
        f"**{shown(verdict, statement)}**",
        "<br>".join(cells),
        f"`{command(statement, results)}`",
    )
    return "| " + " | ".join(cell.replace("|", "&#124;") for cell in row) + " |"


def _claim(claim: Claim, statement: Statement, results: Results) -> str:
    statistics = results.statistics(statement.experiment)
    worst = claim.now.worst(statistics)
    of = len(statistics.get(claim.now.statistic, ()))
    where = f" ({worst.at}{f'; closest of {of}' if of > 1 else ''})" if worst else ""
    when = f"{claim.when}: " if claim.when else ""
    paper = f"; paper: {claim.paper}" if claim.paper else ""
    text = f"{when}{claim.now.text}: {figure(worst)}{where}, wanted {claim.now.threshold}{paper}"
    status = results.status(statement, claim)
    needs = f" (to decide it: {claim.needs})" if status == "not decided" and claim.needs else ""
    return f"{text}: *{status}*{needs}"


def _history(results: Results) -> Iterator[str]:
    for name in dict.fromkeys(s.experiment for s in statements()):
        for claim in claims(name):
            if not claim.before:
                continue
            for wording in claim.wordings:
                yield _wording(name, claim, wording, results)


def _wording(name: str, claim: Claim, wording: Wording, results: Results) -> str:
    statistics = results.statistics(name)
    status = wording.judge(statistics)
    why = wording.why if wording is not claim.now else "(the present wording)"
    found = f"{wording.text}; wanted {wording.threshold}: {figure(wording.worst(statistics))}"
    cells = (f"`{name}` {claim.key}", wording.date, found, f"*{status}*", why)
    return "| " + " | ".join(cell.replace("|", "&#124;") for cell in cells) + " |"


HEAD = """
# Every claim of the papers

Made by `whence paper all --out DIR`; do not edit. `whence paper` prints the table. CCC05 and TR05 say the same as CCC11
where both say something, and share its rows. The pages under `docs/results` have the plots.

A statement is what a paper says at one place, in our words. Its claims make it testable: a statistic, a threshold, and
the date on which they were declared. Claims are judged on 95 % intervals, over seeds or counts. Settings that are
compared run with the same seeds, and the interval is that of the differences. Points that are judged together have
wider intervals, so that all of them cover at once. A claim *holds* if every interval lies within its threshold, it
*fails* if one lies outside, and else it is *not decided*. Figures are those of the point that decides. Seeds count from
0 unless the command names another first one.

A `--quick` run has fewer points and seeds, and decides less. It contradicts this page if a claim that holds here fails
there, or fails here and holds there; a claim that one of them does not decide is no contradiction. `make test` runs
most experiments with `--quick` and fails if one contradicts the page; `make test-long` runs the others.

* **holds**: all claims of the statement, as printed, hold.
* **holds with our correction**: it fails as printed, and holds as corrected here.
* **depends on**: it holds under some of the tested conditions and fails under others.
* **refuted**: it fails, and our corrections do not save it.
* **not decided**: the intervals are too wide, or it was not run.
"""

CHANGED = """
A claim that was changed keeps its earlier wordings, judged by the same data. Those that were loosened after the data
had been seen, or could not fail, are marked.
"""
