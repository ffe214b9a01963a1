"""The arguments of what goes beyond one cluster. The commands themselves are imported when they run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whence.cli.later import later
from whence.cli.live import TRUST, add_command, add_connection, positive

BRIDGE = """\
examples:
  whence bridge --cluster lobby --join 127.0.0.1:7001 --insecure --to hall --join 127.0.0.1:7002 --insecure

as a service, which survives kill -9 and is watched; each cluster has its own keys:
  whence bridge --directory /var/lib/whence/bridge --metrics 127.0.0.1:9464 \\
      --cluster lobby --listen 10.0.0.7:7001 --join 10.0.0.5:7001 --tls /etc/whence/lobby bridge \\
      --to hall --listen 10.0.0.7:7002 --join 10.0.1.5:7001 --secret-file hall.key

What follows --cluster NAME or --to NAME is about that cluster. Publishers choose what crosses: in Python
`seat.publish(whence.live.bridge.everywhere(b"..."))`, in the shell `whence publish --everywhere`; --all brings over
what has no scope, too. Bridges join clusters in a tree: one that would close a circle is refused (exit code 2).
docs/survey.md
"""

DOOR = """\
examples, each line in its own terminal:
  whence door --cluster lobby --listen 127.0.0.1:7001 --insecure --open 127.0.0.1:7101
  whence door --cluster lobby --join 127.0.0.1:7001 --insecure --open 127.0.0.1:7102
  whence publish --cluster lobby --via 127.0.0.1:7101,127.0.0.1:7102 --insecure hello

A member that publishes for clients that are not members. Clients use the same keys as members. Deliveries go to
standard output, each once: cluster and publisher, a tab, the payload; or JSON.
"""

PUBLISH = """\
examples:
  whence publish --cluster lobby --via 127.0.0.1:7101,127.0.0.1:7102 --insecure hello
  tail -f log | whence publish --cluster lobby --via 10.0.0.5:7101,10.0.0.6:7101 --tls /etc/whence/keys log --everywhere

No member is needed here: those named by --via (`whence door`) publish, each event once, even if one of them dies
meanwhile. Two of them have to have an event before the next one is sent (--copies).
For a script that may die, too: --client NAME --last N goes on after number N, and publishes nothing twice.
"""


def add(commands: Any) -> None:
    """The commands, added to `whence`."""
    _bridge(add_command(commands, "bridge", "join clusters: events cross, causal order is kept", BRIDGE))
    _door(add_command(commands, "door", "take part, and publish for those who are no members", DOOR))
    _publish(add_command(commands, "publish", "publish in a cluster without being a member", PUBLISH))


class _NextSide(argparse.Action):
    """`--cluster NAME`, `--to NAME`: what follows is about this cluster."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        side = argparse.Namespace(cluster=values, **{name: _copy(value) for name, value in SIDE.items()})
        namespace.sides = [*(namespace.sides or []), side]


class _OfSide(argparse.Action):
    """An option of the cluster that was named last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if not namespace.sides:
            parser.error(f"{option_string} is about a cluster: --cluster NAME comes before it")
        side = namespace.sides[-1]
        if self.nargs == 0:
            setattr(side, self.dest, True)
        elif isinstance(SIDE[self.dest], list):
            getattr(side, self.dest).append(values)
        else:
            setattr(side, self.dest, values)


SIDE: dict[str, Any] = {
    "listen": "127.0.0.1:0",
    "advertise": None,
    "join": [],
    "trust": [],
    "timeout": 10.0,
    "secret_file": None,
    "tls": None,
    "insecure": False,
    "tickets": 8,
    "order": "reliable",
    "udp": False,
}
"""The options of a cluster, where nothing else is said."""


def _copy(value: object) -> object:
    return list(value) if isinstance(value, list) else value


def _bridge(command: argparse.ArgumentParser) -> None:
    command.set_defaults(sides=None, call=later("bridge", "bridge"))
    names = command.add_argument_group("which clusters")
    names.add_argument("--cluster", action=_NextSide, metavar="NAME", help="the first one", dest="_cluster")
    names.add_argument("--to", action=_NextSide, metavar="NAME", help="another one; may be repeated", dest="_to")
    of = command.add_argument_group("of the cluster named before")

    def option(name: str, **more: Any) -> None:
        of.add_argument(name, action=_OfSide, default=argparse.SUPPRESS, **more)

    option("--listen", metavar="HOST:PORT", help="default: any free port of 127.0.0.1")
    option("--advertise", metavar="HOST:PORT", help="how others reach it, if not by the --listen address")
    option("--join", metavar="HOST:PORT", help="a member to join through; may be repeated")
    option("--trust", metavar="HOST:PORT", help=TRUST)
    option("--timeout", type=positive, metavar="SECONDS", help="to find a member in (default 10)")
    option("--secret-file", type=Path, metavar="FILE", help="shared by all members")
    option("--tls", nargs=2, metavar=("DIR", "NAME"), help="certificates; this member's is in DIR/NAME")
    option("--insecure", nargs=0, help="no protection; loopback only")
    option("--tickets", type=int, metavar="N", help="of the cluster, the same as for all its members (8)")
    option("--order", choices=("causal", "reliable"), help="of deliveries to the bridge (default reliable)")
    option("--udp", nargs=0, help="gossip by datagrams, the same for all")
    how = command.add_argument_group("how")
    how.add_argument("--directory", type=Path, metavar="DIR", help="to go on from after kill -9")
    how.add_argument("--all", action="store_true", help="what has no scope crosses, too")
    how.add_argument(
        "--probe", type=float, default=2.0, metavar="S", help="seconds to look for another way in (default 2; 0: none)"
    )
    how.add_argument(
        "--trace", type=Path, metavar="DIR", help="write every step, and what crossed, into this directory"
    )
    how.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics (Prometheus) and /health there")
    how.add_argument("--every", type=positive, metavar="S", help="print what has crossed every S seconds")
    how.add_argument("--json", action="store_true", help="notices and --every as JSON lines")


def _door(command: argparse.ArgumentParser) -> None:
    add_connection(command)
    what = command.add_argument_group("what")
    what.add_argument("--open", default="127.0.0.1:0", metavar="HOST:PORT", help="for clients; default: any free port")
    what.add_argument("--json", action="store_true", help="deliveries and notices as JSON lines")
    what.add_argument("--quiet", action="store_true", help="print no deliveries")
    what.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics (Prometheus) and /health there")
    what.add_argument(
        "--door-secret-file",
        type=Path,
        metavar="FILE",
        help="the secret of the door's clients (`whence publish --secret-file`); default: they hold the cluster's keys",
    )
    command.set_defaults(call=later("door", "door"))


def _publish(command: argparse.ArgumentParser) -> None:
    command.add_argument("text", nargs="*", metavar="TEXT", help="an event each (default: the lines of standard input)")
    command.add_argument("--cluster", required=True, metavar="NAME", help="where")
    command.add_argument("--via", required=True, metavar="HOST:PORT,..", help="doors of members (`whence door --open`)")
    who = command.add_argument_group("as the members, one of").add_mutually_exclusive_group()
    who.add_argument("--secret-file", type=Path, metavar="FILE", help="the cluster's secret")
    who.add_argument("--tls", nargs=2, metavar=("DIR", "NAME"), help="our certificate is in DIR/NAME")
    who.add_argument("--insecure", action="store_true", help="members of this machine that want no proof")
    how = command.add_argument_group("how")
    how.add_argument("--everywhere", action="store_true", help="global scope: bridges bring it to other clusters")
    how.add_argument("--copies", type=int, metavar="K", help="members that must have it (default 2, if there are two)")
    how.add_argument("--client", metavar="NAME", help="who publishes (default: a new name)")
    how.add_argument(
        "--last", type=int, default=0, metavar="N", help="the last number this client has used (default 0)"
    )
    how.add_argument("--timeout", type=positive, default=60.0, metavar="S", help="until it gives up (default 60)")
    how.add_argument("--json", action="store_true", help="tell each event's client and number as a JSON line")
    command.set_defaults(call=later("publish", "publish"))
