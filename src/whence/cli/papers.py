"""The commands that redo the papers: scale, paper."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from whence.cli.later import later

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    """Add the commands of the array engine and of the papers' figures."""
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
            help="redo a figure, table or theorem of the papers",
            description="Redo an experiment of the papers: data (CSV, Parquet), plot, and claims.json.",
        )
    )


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
    command.add_argument("name", nargs="?", metavar="NAME", help="such as pco17/fig3; none: list them")
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="where data, plot and claims.json go (default out/NAME)"
    )
    command.add_argument("--quick", action="store_true", help="seconds instead of minutes, with larger errors")
    command.add_argument("--seed", type=int, default=0)
    command.add_argument("--latencies", type=Path, metavar="CSV", help="recorded round-trip times, where they are wanted")
    command.add_argument("--master", metavar="URL", help="run the points through a Spark sweep on this master")
    command.add_argument("--json", action="store_true", help="print the claims as JSON")
    command.set_defaults(call=later("paper", "paper"))
