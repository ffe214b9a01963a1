"""The arguments of the live commands, and help that teaches. The commands themselves are imported when they run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from whence.audit.judge.promises import PROMISES
from whence.cli.later import later
from whence.errors import ConfigError

if TYPE_CHECKING:
    from whence.core.order import Contract

_RAW = argparse.RawDescriptionHelpFormatter

NODE = """\
examples, each line in its own terminal:
  whence node --cluster lobby --listen 127.0.0.1:7001 --insecure --coordinate
  whence node --cluster lobby --join 127.0.0.1:7001 --insecure --coordinate
  whence node --cluster lobby --join 127.0.0.1:7001 --insecure --order reliable --json | jq .payload

without tickets, everybody may publish at any time (docs/probabilistic.md), each line in its own terminal:
  whence node --cluster free --listen 127.0.0.1:7002 --insecure --order probabilistic --coordinate
  whence node --cluster free --join 127.0.0.1:7002 --insecure --order probabilistic --coordinate --json

between machines, with the keys of `whence keys`:
  whence node --cluster lobby --listen 10.0.0.5:7001 --tls /etc/whence/keys alice --coordinate
  tail -f log | whence node --cluster lobby --listen 10.0.0.6:7001 --join 10.0.0.5:7001 --secret-file s.key --coordinate

as a service, which survives kill -9 and is watched; all nodes have the same list of peers (docs/operations.md):
  whence node --cluster lobby --listen 10.0.0.7:7001 --peers 10.0.0.5:7001,10.0.0.6:7001,10.0.0.7:7001 \\
      --tls /etc/whence/keys carol --coordinate --stay --directory /var/lib/whence/lobby --metrics 127.0.0.1:9464

The first node founds the cluster: it has no --join. Lines of the standard input are events; the end of input ends the
node, and so do Ctrl-C and SIGTERM: the ticket is given back and the others are told (a second Ctrl-C ends it at once).
Deliveries go to standard output: the publisher's address, a tab, the line; or JSON. Notices go to standard error.
"""

CHAT = """\
examples:
  whence chat --cluster tea --nick ann --listen 127.0.0.1:7001 --insecure
  whence chat --cluster tea --nick bob --join 127.0.0.1:7001 --insecure
  fortune | whence chat --cluster tea --nick oracle --join 127.0.0.1:7001 --insecure

An answer is never shown before its question. There may be more people than tickets: whoever speaks takes one, and
gives it back after a silence.
"""

UP = """\
examples:
  whence up 5                                  five processes on this machine; Ctrl-C stops them all
  whence up 8 --coordinators 4 --load 200      four of them publish 200 events a second each
  whence up 5 --drop 0.05 --trace out          5 % of gossip is lost on purpose; what happened goes to out/
  whence up 3 --seconds 10 --json | tail -1    for scripts: one JSON object a second
  whence plan --members 12 --publishers 3 --rate 5 --toml > mine.toml && whence up 12 --settings mine.toml

Each has a directory of its own. Kill one (its process id is in the table) and watch it come back.
"""

KEYS = """\
examples:
  whence keys init keys                        the cluster's CA, shared secret and publishers' key, in keys/
  whence keys issue keys alice                 what alice needs, in keys/alice/: copy that to her machine
  whence keys issue keys wall --role receiver  may only receive: its events are refused
"""


WITNESS = """\
examples:
  whence witness lobby --join 127.0.0.1:7001 --listen 127.0.0.1:7009 --insecure
  whence witness lobby --listen 10.0.0.9:7001 --join 10.0.0.5:7001 --secret-file s.key --memory /var/lib/lobby

A witness votes on who may publish, and does nothing else: with it, two publishers survive the loss of either. It keeps
a few KB, so give --listen a port: started again there, it is the same voter. Run it where a machine is always on.
"""

FOUND = """\
example, when the voters that do not answer are gone for good:
  whence found lobby --force --join 127.0.0.1:7002 --insecure

The council decides by itself who goes on publishing, as long as enough of its voters answer. If too many of them are
gone for good, nobody can tell their death from a cut, and a person has to: --force has the member at --join found
the ring again, under a new council. It is refused while an owner, or enough voters, are heard. If the lost voters live
after all, both sides publish under the same tickets until they hear of each other; then the older side stops.
"""

MEMORY = (
    "the directory of this member's voter state, a few KB, or none (default: the user's state directory, if --listen "
    "names a port)"
)

SETTINGS = "a scenario file, such as `whence plan --toml` prints: its cluster's settings, the same for all"


def add(commands: Any) -> None:
    """The live commands, added to `whence`."""
    _node(add_command(commands, "node", "take part in a cluster: lines in, deliveries out", NODE))
    _chat(add_command(commands, "chat", "talk in a cluster", CHAT))
    _witness(add_command(commands, "witness", "vote on who may publish in a cluster, and do nothing else", WITNESS))
    _found(add_command(commands, "found", "decide that a cluster's council is lost for good", FOUND))
    _up(add_command(commands, "up", "start a local cluster of N processes", UP))
    _keys(add_command(commands, "keys", "make a cluster's keys, issue them to members", KEYS))


def add_command(commands: Any, name: str, what: str, examples: str) -> argparse.ArgumentParser:
    description = what[0].upper() + what[1:] + "."
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=what, description=description, epilog=examples, formatter_class=_RAW
    )
    return parser


TRUST = "a bridge or a door of this cluster; may be repeated (default: every publisher can pass for one)"


def add_connection(command: argparse.ArgumentParser) -> None:
    """What it takes to be a member."""
    where = command.add_argument_group("where")
    where.add_argument("--cluster", required=True, metavar="NAME", help="the cluster's name, the same for all members")
    _add_place(where)
    add_security(command)
    how = command.add_argument_group("how")
    how.add_argument(
        "--order", choices=tuple(PROMISES), help="of deliveries here (default causal, or what --settings says)"
    )
    _add_how(how)


def _add_place(where: argparse._ArgumentGroup) -> None:
    where.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: any free port of 127.0.0.1"
    )
    where.add_argument("--advertise", metavar="HOST:PORT", help="how others reach it, if not by the --listen address")
    where.add_argument(
        "--join", action="append", default=[], metavar="HOST:PORT", help="a member to join through; may be repeated"
    )
    where.add_argument("--found", action="store_true", help="found the cluster (implied when there is no --join)")
    where.add_argument(
        "--peers",
        metavar="HOST:PORT,..",
        help="instead of --join: the same list at every node, itself in it; one of them founds (docs/operations.md)",
    )
    where.add_argument(
        "--timeout", type=positive, metavar="SECONDS", help="to find a member in (default 10; with --peers: no limit)"
    )


def add_security(command: argparse.ArgumentParser) -> None:
    who = command.add_argument_group("who may take part, one of").add_mutually_exclusive_group()
    who.add_argument("--secret-file", type=Path, metavar="FILE", help="shared by all members")
    who.add_argument("--tls", nargs=2, metavar=("DIR", "NAME"), help="certificates; this member's is in DIR/NAME")
    who.add_argument("--insecure", action="store_true", help="no protection; loopback only")


def _add_how(how: argparse._ArgumentGroup) -> None:
    how.add_argument(
        "--contract",
        type=contract,
        metavar="K=V,..",
        help="no tickets: everybody publishes; such as target_error=0.001,rate=200,delay=0.02 (docs/probabilistic.md)",
    )
    how.add_argument(
        "--tickets", type=count, metavar="N", help="how many may publish at a time, the same for all (default 8)"
    )
    how.add_argument("--settings", type=Path, metavar="FILE", help=SETTINGS)
    how.add_argument("--directory", type=Path, metavar="DIR", help="to go on from after kill -9")
    how.add_argument("--memory", default="", metavar="WHERE", help=MEMORY)
    how.add_argument(
        "--trace",
        type=Path,
        metavar="DIR",
        help="write every step into this directory as JSON lines; DIR/NAME.parquet: as Parquet files (docs/trace.md)",
    )
    how.add_argument("--udp", action="store_true", help="gossip by datagrams, the same for all (large messages: TCP)")
    how.add_argument("--drop", type=share, default=0.0, metavar="P", help="lose this share of gossip, on purpose")
    how.add_argument("--trust", action="append", metavar="HOST:PORT", help=TRUST)


def contract(text: str) -> Contract:
    """`target_error=0.001,rate=200` as a contract."""
    from whence.core.order import Contract

    fields = {f.name: f for f in msgspec.structs.fields(Contract)}
    given: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if name not in fields:
            raise argparse.ArgumentTypeError(f"no setting {name!r}; there are {', '.join(fields)}")
        given[name] = value
    try:
        return msgspec.convert(given, Contract, strict=False)
    except (msgspec.ValidationError, ConfigError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _node(command: argparse.ArgumentParser) -> None:
    add_connection(command)
    what = command.add_argument_group("what")
    what.add_argument("--coordinate", action="store_true", help="take a ticket and publish the lines of standard input")
    what.add_argument("--load", type=positive, metavar="R", help="publish R events a second instead (see `whence up`)")
    what.add_argument("--stay", action="store_true", help="the end of input does not end the node")
    what.add_argument("--json", action="store_true", help="deliveries and notices as JSON lines")
    what.add_argument("--quiet", action="store_true", help="print no deliveries")
    what.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics (Prometheus) and /health there")
    command.set_defaults(call=later("node", "node"))


def _chat(command: argparse.ArgumentParser) -> None:
    add_connection(command)
    command.add_argument("--nick", required=True, metavar="N", help="who you are")
    command.set_defaults(call=later("chat", "chat"))


def _witness(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", metavar="NAME", help="the cluster's name")
    _add_place(command.add_argument_group("where"))
    add_security(command)
    _add_how(command.add_argument_group("how"))
    command.add_argument("--json", action="store_true", help="notices as JSON lines")
    command.set_defaults(call=later("witness", "witness"), order="unordered")


def _found(command: argparse.ArgumentParser) -> None:
    command.add_argument("cluster", metavar="NAME", help="the cluster's name")
    command.add_argument("--force", action="store_true", help="the voters that do not answer are gone for good")
    command.add_argument(
        "--join", required=True, metavar="HOST:PORT", help="the member that founds the ring again; it goes on running"
    )
    command.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="for the answer (default: a port of 127.0.0.1)"
    )
    add_security(command)
    command.set_defaults(call=later("witness", "found"))


def _up(command: argparse.ArgumentParser) -> None:
    command.add_argument("members", type=count, metavar="N", help="processes")
    command.add_argument("--coordinators", type=count, metavar="K", help="of them publish (default: all, at most 8)")
    command.add_argument("--seconds", type=positive, metavar="S", help="stop after so long (default: on Ctrl-C)")
    command.add_argument(
        "--load", type=positive, default=10.0, metavar="R", help="events a second of each (default 10)"
    )
    command.add_argument(
        "--order", choices=tuple(PROMISES), help="of deliveries (default causal, or what --settings says)"
    )
    command.add_argument("--settings", type=Path, metavar="FILE", help=SETTINGS)
    command.add_argument("--drop", type=share, default=0.0, metavar="P", help="lose this share of gossip, on purpose")
    command.add_argument("--udp", action="store_true", help="gossip by datagrams")
    command.add_argument("--trace", type=Path, metavar="DIR", help="write every step into this directory")
    command.add_argument("--json", action="store_true", help="one JSON object a second instead of a table")
    command.set_defaults(call=later("up", "up"), tickets=None, contract=None)


def _keys(command: argparse.ArgumentParser) -> None:
    steps = command.add_subparsers(dest="step", metavar="STEP", required=True)
    init = steps.add_parser("init", help="make a cluster's keys", description="Make a cluster's keys in DIR.")
    init.add_argument("directory", type=Path, metavar="DIR")
    init.set_defaults(call=later("keys", "init"))
    issue = steps.add_parser("issue", help="make a member's keys", description="Make what the member NAME needs.")
    issue.add_argument("directory", type=Path, metavar="DIR", help="where `whence keys init` made the cluster's")
    issue.add_argument("name", metavar="NAME")
    issue.add_argument("--role", choices=("publisher", "receiver"), default="publisher", help="default: publisher")
    issue.set_defaults(call=later("keys", "issue"))


def positive(text: str) -> float:
    """A number above 0, for argparse."""
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return number


def share(text: str) -> float:
    """A probability below 1, for argparse."""
    number = float(text)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError("must be at least 0 and below 1")
    return number


def count(text: str) -> int:
    """A number from 1 on, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
