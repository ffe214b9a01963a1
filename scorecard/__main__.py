"""`python -m scorecard [NAME ...]`: who shows an effect before its cause? docs/scorecard.md has the table and says how
to read it.

Real systems, each with its own network, between which only the wires are ours. Needs root and /dev/net/tun. What is in
the output directory already is not run again. Each call begins with two controls, a mesh that must invert and a total
order that must not: if either does not, the call is void and nothing is kept.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from types import FrameType

from scorecard.runs import RUNS, SETTINGS, Stage
from scorecard.switch import Network, claim
from scorecard.systems import SYSTEMS, System

from scorecard import verdicts

OUT = Path("out/scorecard")
MOST_S = 285
"""No system takes longer: what is not done by then is left to the next call."""
CONTROLS = ("mesh", "sequencer")
Runs = list[tuple[str, str, int]]
"""(layout, setting, number of the run)"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scorecard", description=__doc__)
    parser.add_argument("name", nargs="*", help="systems whose names begin so, such as nats; none: all")
    parser.add_argument("--list", action="store_true", help="the systems, and what is missing here")
    parser.add_argument("--settings", default=",".join(RUNS), help=f"of {', '.join(SETTINGS)} (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=OUT, help="traces, verdicts and pages (default: %(default)s)")
    args = parser.parse_args()
    chosen = [s for s in SYSTEMS.values() if not args.name or any(s.key.startswith(n) for n in args.name)]
    settings = args.settings.split(",")
    if not chosen or (unknown := [s for s in settings if s not in SETTINGS]):
        parser.error(f"no such setting: {unknown[0]}" if chosen else f"no such system; there are {', '.join(SYSTEMS)}")
    for system in chosen:
        if missing := system.missing():
            print(f"not here: {system.label}: {', '.join(missing)}; get it by: {system.get}", flush=True)
        elif args.list:
            print(f"here: {system.label}", flush=True)
    if args.list:
        return 0
    if os.geteuid() or not Path("/dev/net/tun").exists():
        parser.error("needs root and /dev/net/tun, for namespaces and a switch; without: whence conform --own-network")
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another scorecard writes into {args.out}")
        return measure([system for system in chosen if not system.missing()], settings, args.out.resolve())


def measure(systems: list[System], settings: list[str], out: Path) -> int:
    """The controls, then each system; then the table of all there is."""
    for sign in (signal.SIGINT, signal.SIGTERM):  # a shell may have it begin with SIGINT ignored
        signal.signal(sign, interrupted)
    signal.signal(signal.SIGALRM, too_long)
    claim(str(out))
    network = Network()
    try:
        with tempfile.TemporaryDirectory(prefix="scorecard-") as folder:
            work = Path(folder)
            work.chmod(0o755)
            if why := void(network, work, out / "controls"):
                print(f"void: {why}", file=sys.stderr)
                return 1
            for system in systems:
                todo = [
                    (layout, setting, n)
                    for layout in system.layouts
                    for setting in settings
                    for n in range(1, RUNS.get(setting, 1) + 1)
                    if not (out / system.key / "traces" / f"{layout}-{setting}-{n}.json").exists()
                ]
                one(network, system, todo, work, out / system.key)
    except KeyboardInterrupt:
        print("stopped; the next call goes on from here", file=sys.stderr)
        return 130
    finally:
        for sign in (signal.SIGINT, signal.SIGTERM):  # a second one must not leave anything behind
            signal.signal(sign, signal.SIG_IGN)
        network.close()
    done = [key for key in SYSTEMS if (out / key / "verdicts").exists()]
    (out / "table.md").write_text(verdicts.page(out, done))
    print(verdicts.page(out, [key for key in done if key in {s.key for s in systems}]))
    print(f"the whole table: {out / 'table.md'}; pages: {out}/SYSTEM/verdicts/report.html")
    return 0


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def too_long(number: int, frame: FrameType | None) -> None:
    raise RuntimeError("five minutes are over; call again for the rest")


def one(network: Network, system: System, todo: Runs, work: Path, out: Path) -> None:
    """The runs of a system that are still to do, and their audit."""
    if not todo:
        return
    place = work / f"{system.key}-{time.monotonic_ns()}"
    place.mkdir()
    (out / "traces").mkdir(parents=True, exist_ok=True)
    stage = Stage(network, system, place)
    signal.alarm(MOST_S)
    try:
        stage.up()
        for layout, setting, n in todo:
            trace = out / "traces" / f"{layout}-{setting}-{n}.jsonl"
            facts = stage.run(layout, setting, n, trace)
            trace.with_suffix(".json").write_text(json.dumps(facts))
            print(f"{system.label}: {json.dumps(facts)}", flush=True)
    except (RuntimeError, OSError) as error:
        print(f"{system.label}: failed: {error}", file=sys.stderr, flush=True)
    finally:
        signal.alarm(0)
        stage.down()
    if any(out.glob("traces/*.json")):
        verdicts.audit(out)


def void(network: Network, work: Path, out: Path) -> str:
    """Why this call shows nothing; empty if the controls are as they must be."""
    for key in CONTROLS:
        system, place = SYSTEMS[key], out / key
        shutil.rmtree(place, ignore_errors=True)
        one(network, system, [("one", "slow", 1), ("one", "held", 1)], work, place)
        found = verdicts.cells(place, system)
        if len(found) < 2:
            return f"the control {key} did not run"
        for setting, cell in (("slow", found["one", "slow"]), ("held", found["one", "held"])):
            if key == "mesh" and cell.total < 0.9 * cell.sum("asked"):
                return f"{setting}: the mesh inverted {cell.total} of {cell.sum('asked')}, and must invert nearly all"
            if key == "sequencer" and cell.total:
                return f"{setting}: the total order inverted {cell.total} of {cell.sum('asked')}, and must not"
    return ""


if __name__ == "__main__":
    sys.exit(main())
