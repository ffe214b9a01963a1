"""The command line: which commands there are, and their arguments."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import whence
from whence.cli import beyond, history, kit, live, others, papers, pipeline
from whence.cli.later import later

CONTENTS = {
    "see it work": ("demo", "sim", "up", "chat"),
    "run it": ("node", "bridge", "door", "publish", "keys"),
    "ask what happened": ("audit", "import", "history", "watch"),
    "break it": ("soak", "shrink", "conform"),
    "size it, compare it": ("plan", "sweep", "scale", "paper"),
}
"""How `whence --help` groups the commands; what is in no group comes last."""

EXAMPLES = """\
examples:
  whence sim demo                              one small cluster with losses, and what became of its events
  whence sim hostile --seed 7 --trace out      everything at once; every step of every member as Parquet in out/
  whence sim hostile-survey --set cluster.mechanism=interval   the same, ordered by a mechanism of the survey
  whence sim world --data rtt.csv              between cities, with your own round-trip times
  whence soak hostile --seeds 100              100 seeds; a failing one is shrunk to a schedule you can read
  whence shrink hostile --seed 7 --out s.toml  the same for one seed; then: whence sim s.toml
  whence up 5                                  a live cluster of five processes on this machine
  whence chat --cluster tea --nick ann --insecure   talk; `whence chat --help` says how others join

A SCENARIO is a TOML file, or the name of one that comes with whence: see docs/simulator.md.
Live clusters: see docs/live.md.
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="whence",
        description="Causally ordered group communication at gossip scale.",
        formatter_class=raw,
    )
    top.add_argument("-v", dest="talk", action="count", default=0, help="say more: what the parts log (-vv: all of it)")
    top.add_argument("--version", action="version", version=f"whence {whence.__version__}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", help="one of those below; each has its own --help", required=True
    )
    _demo(
        commands.add_parser(
            "demo",
            help="a live cluster in trouble, audited, and a page to look at",
            description="25 members in five processes here: messages are lost, a process is killed and comes "
            "back, a part is cut off and heals. Then every delivery is audited, and a page shows what happened.",
        )
    )
    _sim(commands.add_parser("sim", help="run a scenario once", description="Run a scenario once, in virtual time."))
    _soak(
        commands.add_parser(
            "soak", help="run a scenario with many seeds", description="Run a scenario with many seeds, in processes."
        )
    )
    _shrink(
        commands.add_parser(
            "shrink", help="make a failing seed readable", description="Shrink a failing seed to a short schedule."
        )
    )
    live.add(commands)
    beyond.add(commands)
    pipeline.add(commands)
    others.add(commands)
    history.add(commands)
    papers.add(commands)
    kit.add(commands)
    _completion(
        commands.add_parser(
            "completion", help="teach your shell these commands", description='bash: eval "$(whence completion bash)"'
        )
    )
    top.epilog = f"{_contents(commands)}\n{EXAMPLES}"
    return top


def _contents(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> str:
    """The commands by what one wants, instead of argparse's flat list."""
    told = {action.dest: action.help or "" for action in commands._choices_actions}
    commands._choices_actions.clear()
    groups = {title: [name for name in names if name in told] for title, names in CONTENTS.items()}
    groups["and"] = [name for name in told if not any(name in names for names in CONTENTS.values())]
    lines = []
    for title, names in groups.items():
        lines += [f"{title}:", *(f"  {name:11} {told[name]}" for name in names), ""]
    return "\n".join(lines)


def _demo(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seconds", type=live.positive, default=20.0, help="of load (default 20)")
    command.add_argument("--loss", type=live.share, default=0.1, help="of gossip messages, on purpose (default 0.1)")
    command.add_argument(
        "--rate", type=live.positive, default=4.0, help="events/s of each of five publishers (default 4)"
    )
    command.add_argument("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="default out/demo")
    command.add_argument("--no-audit", action="store_true", help="judge by the built-in oracle; needs no Java")
    command.set_defaults(call=later("demo", "demo"))


def _completion(command: argparse.ArgumentParser) -> None:
    command.add_argument("shell", choices=("bash", "zsh", "fish"))
    command.set_defaults(call=later("completion", "completion"))


def _scenario(command: argparse.ArgumentParser) -> None:
    command.add_argument("scenario", metavar="SCENARIO", help="a TOML file, or the name of a packaged scenario")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value for a key of the scenario, such as network.loss=0.2 or cluster.mechanism=interval; may be "
        "repeated",
    )
    command.add_argument("--data", type=Path, metavar="CSV", help="recorded latencies, instead of the scenario's file")
    command.add_argument("--json", action="store_true", help="print one JSON object instead of tables")


def _sim(command: argparse.ArgumentParser) -> None:
    _scenario(command)
    command.add_argument("--seed", type=int, help="default: the scenario's own")
    command.add_argument("--trace", type=Path, metavar="DIR", help="write what every member did into this directory")
    command.add_argument("--format", choices=("parquet", "jsonl"), default="parquet", help="of the trace")
    command.add_argument("--report", type=Path, metavar="FILE", help="write a page with what happened, to look at")
    command.add_argument("--schedule", action="store_true", help="print the schedule (faults and publishes) and stop")
    command.set_defaults(call=later("simulate", "sim"))


def _soak(command: argparse.ArgumentParser) -> None:
    _scenario(command)
    command.add_argument("--seeds", type=live.count, default=100, metavar="N", help="how many (default 100)")
    command.add_argument("--start", type=int, default=0, metavar="S", help="the first seed (default 0)")
    command.add_argument("--jobs", type=live.count, default=os.cpu_count() or 1, help="processes (default: all cores)")
    command.add_argument("--out", type=Path, default=Path(), metavar="DIR", help="where a shrunk scenario is written")
    command.add_argument("--no-shrink", action="store_true", help="only say which seeds fail")
    command.set_defaults(call=later("simulate", "soak"))


def _shrink(command: argparse.ArgumentParser) -> None:
    _scenario(command)
    command.add_argument("--seed", type=int, help="default: the scenario's own")
    command.add_argument("--out", type=Path, metavar="FILE", help="write the short scenario here")
    command.add_argument("--runs", type=live.count, default=300, help="how many runs to spend at most (default 300)")
    command.set_defaults(call=later("simulate", "shrink"))
