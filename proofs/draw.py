"""Draw the counterexample that TLC finds for the published ring: `python proofs/draw.py [OUTPUT] [--out FILE]`.

OUTPUT is what TLC printed for the case `ring-as-published` (by default where `make prove` leaves it). Needs matplotlib
(the extra `paper`). One lane a process, time runs down; each step of the counterexample is one row.
"""

from __future__ import annotations

import argparse
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

LANES = {"p": "p (predecessor)", "a": "a", "b": "b", "c": "c", "d": "d", "z": "z (owner)"}
LISTS = ("{p, a, b}", "{p, c, a}", "{p, d, c}")


class Step(NamedTuple):
    """One row: from whom to whom (the same: a step of its own), and what happens."""

    src: str
    dst: str
    text: str
    bad: bool = False


def states(text: str) -> list[tuple[str, dict[str, str]]]:
    """Action and variables of each state of TLC's counterexample."""
    found = []
    for block in re.split(r"^State \d+: ", text, flags=re.MULTILINE)[1:]:
        action = re.match(r"<(\w+ ?\w*)", block)
        pairs = re.findall(r"^/\\ (\w+) = (.+)$", block, re.MULTILINE)
        found.append((action[1].split()[0] if action else "", dict(pairs)))
    return found


def _members(value: str) -> list[str]:
    return re.findall(r"\w+", value)


def _new(before: dict[str, str], after: dict[str, str], name: str) -> str:
    """The one element that a set has gained, or lost."""
    old, new = set(_members(before[name])), set(_members(after[name]))
    return min(old ^ new)


def story(text: str) -> list[Step]:
    """The counterexample in words."""
    found = states(text)
    steps = [Step("z", "z", f"owns the ticket; its list is {LISTS[0]}")]
    for (_, before), (action, after) in pairwise(found):
        match action:
            case "Update":
                steps.append(Step("p", "z", f"UPDATE: list {LISTS[int(after['sent']) - 1]}"))
            case "Adopt":
                steps.append(Step("z", "z", f"takes {LISTS[int(after['holds']) - 1]}; its status to p is lost"))
            case "Status":
                steps.append(Step("z", "p", f"status: holds {LISTS[int(after['known']) - 1]}"))
            case "Vouch":
                steps.append(Step(_new(before, after, "have"), "z", "ALIVE: vouches for z"))
            case "Expire":
                steps.append(Step("z", "z", f"the vouch of {_new(before, after, 'have')} runs out"))
            case "Exclude":
                steps.append(Step("p", "p", f"excludes z; knows of {LISTS[int(after['known']) - 1]} only"))
            case "Agree":
                steps.append(Step(_new(before, after, "agreed"), "p", "ACKCOORD: agrees"))
            case "Take":
                agreed = ", ".join(sorted(_members(after["agreed"])))
                backed = ", ".join(sorted(_members(after["have"])))
                steps.append(Step("p", "p", f"has {agreed}: two of three; gives the ticket away", bad=True))
                steps.append(Step("z", "z", f"still has {backed}: owns the ticket, too", bad=True))
            case other:
                sys.exit(f"no picture for a step {other!r}")
    return steps


def draw(steps: list[Step], out: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.hashsalt"] = "whence"  # the same picture, byte for byte
    x = {name: i for i, name in enumerate(LANES)}
    rows = len(steps)
    figure, axes = plt.subplots(figsize=(11, 0.62 * rows + 1.4))
    for name, label in LANES.items():
        axes.plot([x[name]] * 2, [-0.4, rows - 0.4], color="#c0c0c0", lw=1.2, zorder=0)
        axes.text(x[name], -0.75, label, ha="center", va="bottom", fontsize=10, weight="bold")
    for y, step in enumerate(steps):
        color = "#c0392b" if step.bad else "#2c3e50"
        side: dict[str, Any] = {"fontsize": 9, "color": color, "va": "center"}
        if step.src == step.dst:
            axes.plot([x[step.src]], [y], "o", color=color, ms=7)
            axes.text(x[step.src] + 0.12, y, step.text, ha="left", **side)
        else:
            arrow = {"arrowstyle": "-|>", "color": color, "lw": 1.4, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", (x[step.dst], y + 0.12), (x[step.src], y - 0.12), arrowprops=arrow)
            axes.text((x[step.src] + x[step.dst]) / 2, y - 0.22, step.text, ha="center", **side)
    axes.set_xlim(-0.6, len(x) + 2.2)
    axes.set_ylim(rows - 0.3, -1.3)
    axes.axis("off")
    axes.set_title("The published exclusion gives one ticket two owners (found by TLC)", fontsize=11, loc="left")
    figure.savefig(out, bbox_inches="tight", metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", nargs="?", type=Path, default=Path("build/prove/ring-as-published/output.txt"))
    parser.add_argument("--out", type=Path, default=Path("docs/img/ring-two-owners.svg"))
    args = parser.parse_args()
    if not args.output.exists():
        sys.exit(f"{args.output} is not there: run `make prove` first")
    steps = story(args.output.read_text(encoding="utf-8"))
    if len(steps) < 2:
        sys.exit(f"{args.output} holds no counterexample")
    draw(steps, args.out)
    print(args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
