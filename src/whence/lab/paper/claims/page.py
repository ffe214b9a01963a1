"""docs/claims.md: every statement of the papers and its verdict, from the declared claims and stored results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import resources
from itertools import groupby

import msgspec

from whence.lab.paper.claims import STATEMENTS
from whence.lab.paper.claims.model import PaperClaim, Statement, Statistics, Verdict
from whence.lab.paper.frame import Made
from whence.lab.stats import UNKNOWN, Estimate

STORED = "results.json"
"""In `whence.lab.paper`: the results that the page was made from."""


class StoredResult(msgspec.Struct, kw_only=True):
    """What one experiment found."""

    quick: bool
    seed: int
    made: Made = Made()
    statistics: dict[str, list[Estimate]]


class Results(msgspec.Struct):
    """What all experiments found."""

    experiments: dict[str, StoredResult] = {}
    """By what to type after `whence paper`."""

    def statistics(self, experiment: str) -> Statistics:
        found = self.experiments.get(experiment)
        return found.statistics if found else {}

    def verdict(self, experiment: str, statement: Statement) -> Verdict:
        """The verdict that is shown: what only a quick run has measured is not decided."""
        found = self.experiments.get(experiment)
        return "not decided" if found and found.quick else statement.verdict(self.statistics(experiment))


def stored() -> Results:
    """The results in the package."""
    path = resources.files("whence.lab.paper").joinpath(STORED)
    return msgspec.json.decode(path.read_bytes(), type=Results)


def encode(results: Results) -> bytes:
    """For the file: one line for each statistic, so that changes can be read."""
    blocks = []
    for name, result in sorted(results.experiments.items()):
        rows = [f"  {_json(key)}: {_json(found)}" for key, found in sorted(result.statistics.items())]
        head = f'{_json(name)}: {{"quick": {_json(result.quick)}, "seed": {result.seed}, '
        head += f'"made": {_json(result.made)}, "statistics": {{'
        blocks.append(head + "\n" + ",\n".join(rows) + "\n}}")
    return ('{\n"experiments": {\n' + ",\n".join(blocks) + "\n}\n}\n").encode()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def rounded(found: list[Estimate]) -> list[Estimate]:
    """Six digits are enough to judge by, and make the file readable."""
    return [Estimate(e.at, *(float(f"{x:.6g}") for x in (e.value, e.low, e.high))) for e in found]


def figure(found: Estimate | None) -> str:
    """`value [low..high]`, for people."""
    if found is None:
        return "not measured"
    if found.low == found.high:
        return f"{found.value:.4g}"
    if found.high >= UNKNOWN:
        return f"{found.value:.4g} (too few runs)"
    return f"{found.value:.4g} [{found.low:.3g}..{found.high:.3g}]"


def shown(verdict: Verdict, statement: Statement) -> str:
    """The verdict, with what it depends on."""
    return f"depends on {statement.depends}" if verdict == "depends on" else verdict


def command(experiment: str, results: Results) -> str:
    """What to type."""
    found = results.experiments.get(experiment)
    quick = " --quick" if found and found.quick else ""
    seed = f" --seed {found.seed}" if found and found.seed else ""
    return f"whence paper {experiment}{quick}{seed}"


def page(results: Results) -> str:
    """The whole page."""
    verdicts = Counter(results.verdict(name, s) for name, some in STATEMENTS.items() for s in some)
    lines = [HEAD.strip(), "", f"| {' | '.join(verdicts)} |", "|" + "---|" * len(verdicts)]
    lines += [f"| {' | '.join(map(str, verdicts.values()))} |", ""]
    for name, some in STATEMENTS.items():
        found = results.experiments.get(name)
        lines += [
            f"## `{command(name, results)}`",
            "",
            *([str(found.made), ""] if found else []),
            HEADER,
            "|---|---|---|---|",
        ]
        lines += [*(_row(name, statement, results) for statement in some), ""]
    lines += ["## Loosened after the data had been seen", ""]
    lines += [f"* `{name}`: {s.loosened}" for name, some in STATEMENTS.items() for s in some if s.loosened]
    return "\n".join([*lines, "", NAMED.strip(), ""])


def _row(name: str, statement: Statement, results: Results) -> str:
    """A statement in a line. If it does not hold, with the claims that decide."""
    verdict, statistics = results.verdict(name, statement), results.statistics(name)
    items: list[str] = []
    if verdict != "holds":
        deciding = [c for c in statement.claims if verdict == "depends on" or c.judge(statistics) != "holds"]
        items = _items(deciding, statistics)
        if statement.corrected:
            doubtful = [c for c in statement.corrected if c.judge(statistics) != "holds"]
            items += [f"*Correction:* {statement.correction}", *_items(doubtful, statistics)]
    if verdict == "not decided":
        items.append(f"*To decide it:* {statement.needs or 'the full size'}.")
    if statement.note:
        items.append(statement.note)
    says = statement.says + (f"<br>*Given:* {statement.given}" if statement.given else "")
    cells = (statement.place, says, f"**{shown(verdict, statement)}**", "<br>".join(items))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |".replace("|  |", "| |")


def _items(claims: Sequence[PaperClaim], statistics: Statistics) -> list[str]:
    """A claim in a line. Claims that follow each other and differ only in their setting (`N = 500: ...`) share one."""
    found = []
    for (text, threshold), some in groupby(claims, key=lambda c: (c.text.split(": ", 1)[-1], c.threshold)):
        settings = [(claim.text.removesuffix(text), _found(claim, statistics)) for claim in some]
        if len(settings) == 1:
            [(setting, figures)] = settings
            found.append(f"{setting}{text} ({threshold}): {figures}")
        else:
            found.append(f"{text} ({threshold}): " + "; ".join(f"{setting}{figures}" for setting, figures in settings))
    return found


def _found(claim: PaperClaim, statistics: Statistics) -> str:
    """The figure; where the claim does not hold, also the place that decides."""
    worst, status = claim.worst(statistics), claim.judge(statistics)
    if status == "holds":
        return figure(worst)
    return f"{figure(worst)}{f' at {worst.at}' if worst and worst.at else ''}, *{status}*"


HEADER = "| place | statement | verdict | what decides |"
HEAD = """
# Every claim of the papers

Made by `whence paper all --out DIR`; do not edit. The plots are in `docs/results`. CCC05 and TR05 share the
statements of CCC11; `CCC11 4.4` is its section 4.4. *ours* is what we say, not a paper.

A statement is the paper's sentence, with its premises. Claims test it: what was measured, the threshold, and the
figure that decides, with its 95 % interval over runs. A claim holds if every interval lies within the threshold,
*fails* if one lies outside, and is otherwise *not decided*. Claims that hold are shown only where a statement depends
on conditions; `whence paper --json` prints all. *Paired* settings ran with the same seeds.

A statement **holds** if all its claims do; **holds with our correction** if only the corrected claims do;
**depends** if it holds under some conditions and fails under others; is **refuted** if it fails with any correction;
and is **not decided** if intervals are too wide.
"""

NAMED = """
## What the papers name and do not measure

* Total order (CCC05 and TR05, future work): out; it needs consensus for every event. [Objects](./objects.md) order
  concurrent operations by stamps, and converge.
* Object ownership and caching (CCC05 and TR05, future work): out. Use a cluster with few tickets.
* Bounded version vectors (SURVEY 3.2): out. Entries restart with every incarnation.
* One entry for each group, over groups that share members (SURVEY 3.3, Mostefaoui and Raynal): in, as
  [groups](./survey.md#groups-that-share-members) of one ticket.
* Light control messages (SURVEY 3.3) and rules for topologies known in advance (SURVEY 3.4): out.
* Causal unicast (SURVEY 3.3): in, as `cluster.send`, which waits for an acknowledgement instead of the survey's clock;
  that clock compacts multicasts.
* Hierarchies of groups (SURVEY 3.4): in, as trees of clusters of any kind over [bridges](./survey.md#bridges), with
  servers that take over, and as a daisy. Servers that share the load, cycles, and total order across bridges are out.
* View synchrony (SURVEY 2): out; `survey/table1` has a quiet change of the view. Uniform delivery: out; use
  `publish(..., copies=k)`.
* Synchronous channels (SURVEY 3.1): out; they cost a round trip for each event.
* Recovery started by an alert (PCO17 4.2) and a perfect distribution of keys (4.1.3): in, as a contract's `repair` and
  `assignment` ([settings](./probabilistic.md#the-contract)); the paper, too, measures random keys.
* Open groups (SURVEY 3.2): in; [clients](./survey.md#open-groups) publish through a member.
* Byzantine processes: out for the ring; see [SECURITY](../SECURITY.md).
"""
