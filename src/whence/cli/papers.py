"""The commands that size a cluster and redo the papers: plan, scale, paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from whence.cli import live
from whence.cli.later import later

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    """Add the planner and the commands of the array engine and of the papers' figures."""
    _plan(
        commands.add_parser(
            "plan",
            help="settings for a cluster, and what they will do",
            description="From members, load, loss and crashes to settings, predictions and their errors. "
            "docs/planner.md explains the formulas.",
        )
    )
    _scale(
        commands.add_parser(
            "scale",
            help="probabilistic causal order at 10^8 deliveries and more",
            description="Run the array engine: (N, R, K) clocks in the network of PCO17, with an exact oracle.",
        )
    )
    _paper(
        commands.add_parser(
            "paper",
            help="every claim of the papers and its verdict; redo one, or all",
            description="Without a name: the table of all claims. With one: redo that figure, table or theorem (data "
            "as CSV and Parquet, plot, claims.json). With `all`: redo everything, and make the page of all claims.",
        )
    )


def _plan(command: argparse.ArgumentParser) -> None:
    command.add_argument("--members", type=int, metavar="N")
    command.add_argument("--publishers", type=int, metavar="n", help="at a time: so many tickets")
    command.add_argument("--rate", type=float, metavar="PER_S", help="events/s of each publisher")
    command.add_argument("--loss", type=float, default=0.01, metavar="P", help="of messages (default 0.01)")
    command.add_argument("--crash", type=float, default=0.0, metavar="P", help="share of members down (default 0)")
    command.add_argument("--target", type=float, default=0.99999, metavar="P", help="reach all (default 0.99999)")
    command.add_argument("--payload", type=int, default=100, metavar="BYTES", help="of an event (default 100)")
    command.add_argument("--latency", type=float, default=10.0, metavar="MS", help="of the network (default 10)")
    command.add_argument("--order", choices=("causal", "reliable"), default="causal")
    command.add_argument(
        "--mode",
        choices=("rounds", "eager", "tree", "auto"),
        default="eager",
        help="how events spread (default eager, as live clusters run); auto: or tree, where that saves most packets",
    )
    command.add_argument("--round", type=float, metavar="MS", help="default: by formula")
    command.add_argument("--uplink", type=int, default=0, metavar="B/S", help="bytes/s of a member (default: no limit)")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument("--toml", action="store_true", help="print a scenario for `whence sim` and --settings")
    command.add_argument("--check", action="store_true", help="simulate it: predicted next to measured")
    command.add_argument("--verify", type=live.count, metavar="COUNT", help="plan and simulate so many random settings")
    command.add_argument("--seeds", type=live.count, default=4, metavar="S", help="runs of a check (default 4)")
    command.add_argument(
        "--events", type=live.count, default=500, metavar="E", help="of a run of a check (default 500)"
    )
    command.add_argument("--seed", type=int, default=0, help="of checks and random settings")
    command.add_argument("--master", metavar="URL", help="simulate on this Spark master")
    command.set_defaults(call=later("plan", "plan"))


def _scale(command: argparse.ArgumentParser) -> None:
    command.add_argument("--processes", type=int, default=1000, metavar="N", help="default 1000")
    command.add_argument("--entries", type=int, default=100, metavar="R", help="of the vector (default 100)")
    command.add_argument("--keys", type=int, default=4, metavar="K", help="entries of each process (default 4)")
    command.add_argument("--deliveries", type=float, default=1e8, metavar="D", help="at least this many (default 1e8)")
    command.add_argument("--rate", type=float, default=200.0, metavar="PER_S", help="messages/s of all (default 200)")
    command.add_argument("--delay", type=float, default=100.0, metavar="MS", help="mean propagation time (default 100)")
    command.add_argument("--spread", type=float, default=20.0, metavar="MS", help="its deviation (default 20)")
    command.add_argument("--skew", type=float, default=20.0, metavar="MS", help="between receivers (default 20)")
    command.add_argument("--loss", type=float, default=0.0, metavar="P", help="copies lost, and sent again (default 0)")
    command.add_argument("--retry", type=float, default=100.0, metavar="MS", help="until they are (default 100)")
    command.add_argument("--churn", type=float, default=0.0, metavar="PER_S", help="processes replaced (default 0)")
    command.add_argument("--latencies", type=Path, metavar="CSV", help="recorded round-trip times, instead of --delay")
    command.add_argument(
        "--memory", type=int, default=0, metavar="N", help="list of Algorithm 5 (default 2 x in flight)"
    )
    command.add_argument(
        "--alerts", action="store_true", help="count alerts on all deliveries (slower), not on a sample of the same run"
    )
    command.add_argument("--engine", choices=("auto", "fast", "general"), default="auto")
    command.add_argument("--threads", type=int, metavar="T", help="default: all cores")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(call=later("scale", "scale"))


def _paper(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", nargs="?", metavar="NAME", help="such as pco17/fig3, or all; none: the table")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="where data, plot and claims.json go (default out/NAME)"
    )
    command.add_argument("--quick", action="store_true", help="seconds instead of minutes, with larger errors")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument(
        "--latencies",
        type=Path,
        metavar="CSV",
        help="round-trip times in ms (default: between 217 cities)",
    )
    command.add_argument(
        "--data", type=Path, metavar="FILE", help="a recorded editing session (default: a synthetic one)"
    )
    command.add_argument(
        "--live",
        action="store_true",
        help="on real sockets here, beside the simulator (ccc11/availability, fig4, fig5)",
    )
    command.add_argument(
        "--as-published",
        action="store_true",
        help="recovery and its buffer as CCC11 prints them (ccc11/fig4, fig5, world)",
    )
    command.add_argument("--master", metavar="URL", help="run the points through a Spark sweep on this master")
    command.add_argument("--json", action="store_true", help="print the claims as JSON")
    command.set_defaults(call=later("paper", "paper"))
