"""The command over what other systems recorded: import."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from whence.cli.later import later

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add(commands: Commands) -> None:
    """Add the command."""
    command = commands.add_parser(
        "import",
        help="spans and histories of other systems as a trace, to audit",
        description="Turn what other systems recorded into a trace, for `whence audit`. Exit code 0: all of it is "
        "there, 2: bad input, 3: something was refused; file and line are named.",
    )
    command.add_argument(
        "format",
        choices=("otel", "broadcast"),
        help="otel: OpenTelemetry spans, OTLP JSON; broadcast: history.edn of a broadcast workload (Maelstrom, Jepsen)",
    )
    command.add_argument("paths", nargs="+", type=Path, metavar="FILE")
    command.add_argument("--out", type=Path, required=True, metavar="TRACE", help="a new .parquet or .jsonl file")
    command.add_argument(
        "--order",
        choices=("unordered", "fifo", "causal", "reliable"),
        default="causal",
        help="what the system promises (default causal)",
    )
    command.add_argument(
        "--counter",
        metavar="ATTRIBUTE",
        help="otel: the attribute with each process's count of its steps (default whence.counter)",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(call=later("importer", "import_"))
