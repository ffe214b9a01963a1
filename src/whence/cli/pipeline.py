"""The commands over traces: audit, watch, sweep."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from whence.cli.later import later

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    """Add the commands of the data pipeline."""
    _audit(
        commands.add_parser(
            "audit",
            help="did order ever break in these traces, where, and why",
            description="Audit traces with Spark: a verdict for every delivery, explained. "
            "Exit code 0: clean, 1: violations found, 2: bad input, 3: no violation, but something cannot be judged "
            "because the traces are not complete (table doubts), or too short for an --error-rate (table rates).",
        )
    )
    _watch(
        commands.add_parser(
            "watch",
            help="audit a trace while it grows",
            description="Audit the growing trace of a live cluster; verdicts come within seconds. "
            "Exit codes: those of audit.",
        )
    )
    _sweep(
        commands.add_parser(
            "sweep",
            help="run a grid of settings, many seeds each",
            description="Run every setting of a grid with every seed, on the executors of Spark; resumable.",
        )
    )


def _spark(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", metavar="URL", help="a Spark master (default: embedded, all cores)")
    command.add_argument("--memory", metavar="SIZE", help="of the Spark driver, such as 4g (default: fits the machine)")
    command.add_argument("--json", action="store_true", help="print JSON instead of tables")
    command.add_argument("-v", "--verbose", action="store_true", help="let Spark talk")


def _audit(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="trace files, directories of them, globs; of this machine or of a store (s3://, gs://, abfss://, hdfs://)",
    )
    command.add_argument("--out", required=True, metavar="DIR", help="where the tables are written; also a store")
    command.add_argument("--format", choices=("whence", "shiviz"), default="whence", help="of the traces")
    command.add_argument(
        "--parser", metavar="REGEX", help="shiviz: the log's parser expression, with groups host, clock, event"
    )
    command.add_argument(
        "--delimiter",
        metavar="REGEX",
        help="shiviz: what separates the executions in a log; its group trace, if it has one, names them",
    )
    command.add_argument(
        "--complete",
        action="store_true",
        help="the rows of all members are here, to the end of the run: what no row tells of did not happen, and a "
        "reliable member that lacks an event breaks its promise (otherwise that is in doubt)",
    )
    command.add_argument(
        "--error-rate",
        type=float,
        metavar="P",
        help="the share of deliveries that probabilistic members may invert, such as the target_error of their "
        "contract: is it kept? (judged with a 99%% interval, on complete traces)",
    )
    command.add_argument("--metrics", action="store_true", help="measure, too: loss, latency, load, ... (takes longer)")
    command.add_argument(
        "--verdicts",
        choices=("sparse", "all"),
        default="sparse",
        help="sparse (default): a row for each delivery that is not in order, ranges of the others; all: a row for "
        "each delivery, as --metrics needs them",
    )
    command.add_argument(
        "--engine",
        choices=("spark", "local"),
        default="spark",
        help="local: judge in this process, without Spark and Java; the same tables, for traces that fit into memory",
    )
    command.add_argument(
        "--fresh",
        action="store_true",
        help="judge everything, also runs whose files are as they were in an earlier audit into the same --out",
    )
    _spark(command)
    command.set_defaults(call=later("audit", "audit", needs="spark"))


def _watch(command: argparse.ArgumentParser) -> None:
    command.add_argument("trace", type=Path, metavar="TRACE_DIR", help="the directory that members write into")
    command.add_argument("--out", type=Path, metavar="DIR", help="verdicts and checkpoint (default: TRACE_DIR/.watch)")
    command.add_argument("--once", action="store_true", help="judge what there is and stop")
    _spark(command)
    command.set_defaults(call=later("watch", "watch", needs="spark"))


def _sweep(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "grid", type=Path, metavar="GRID", help="a TOML file: the settings, and how many seeds of each"
    )
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="one result row per setting and seed")
    _spark(command)
    command.set_defaults(call=later("sweep", "sweep", needs="spark"))
