"""The commands of the conformance kit: conform, adapter."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from whence.cli.later import later

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

EXAMPLES = """\
examples:
  whence conform --list                                  the scenarios, and what each of them breaks
  whence conform -- whence adapter                       ours
  whence conform -- python examples/conform_vector.py    another system, in one file
  whence conform --only triangle --trace out -- ./node   one scenario; its trace for `whence audit out`
  whence conform --store rw-register -- ./node           a store: is what its clients see causally consistent?

How a node speaks: docs/conform.md.
"""


def add(commands: Commands) -> None:
    """Add the commands of the conformance kit."""
    _conform(
        commands.add_parser(
            "conform",
            help="try on any system what breaks causal broadcast",
            description="Start one COMMAND process per node, speak Maelstrom's message format with it, be its network, "
            "and try what breaks causal broadcast. Exit code 0: all passed (or is not claimed), 1: something failed, "
            "2: bad input.",
            epilog=EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
    )
    _adapter(
        commands.add_parser(
            "adapter",
            help="a node of ours for `whence conform`",
            description="One member, without sockets: Maelstrom's messages on standard input and output.",
        )
    )


def _conform(command: argparse.ArgumentParser) -> None:
    command.add_argument("system", nargs="*", metavar="COMMAND", help="starts one node; put -- before it")
    command.add_argument("--list", action="store_true", help="say what the scenarios are, and stop")
    command.add_argument("--nodes", type=int, default=3, metavar="N", help="how many nodes, 3 or more (default 3)")
    command.add_argument("--only", action="append", default=[], metavar="SCENARIO", help="this one; may be repeated")
    command.add_argument("--timeout", type=float, metavar="S", help="what must happen has so long (10)")
    command.add_argument("--start", type=float, metavar="S", help="a node has so long to start (30, or --timeout)")
    command.add_argument("--hold", type=float, default=1.0, metavar="S", help="how long a cause is withheld (1)")
    command.add_argument("--trace", type=Path, metavar="DIR", help="write what happened, as traces, into DIR")
    command.add_argument(
        "--store",
        choices=("rw-register", "list-append"),
        help="the system is a store with Maelstrom's txn workload: let clients use it, and check what they saw",
    )
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.set_defaults(call=later("conform", "conform"))


def _adapter(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--order", choices=("fifo", "causal", "reliable"), default="reliable", help="(default reliable)"
    )
    command.add_argument("--tickets", type=int, default=4, help="how many nodes may publish at a time (default 4)")
    command.set_defaults(call=later("adapter", "adapter"))
