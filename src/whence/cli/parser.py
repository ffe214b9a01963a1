"""The command line, as tables: what each option means, and which command takes which.

An option is declared once, in `OPTIONS`: it has one meaning in every command. A command lists the options it takes,
with its defaults. Commands are imported when they run.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import whence
from whence.audit.judge.promises import PROMISES

# -- types ----------------------------------------------------------------------------------------------------------


def _number(kind: type[float], good: Callable[[float], bool], want: str) -> Callable[[str], float]:
    """Reads a number; `want` says which ones are good."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if good(number := kind(text)):
                return number
        raise argparse.ArgumentTypeError(f"must be {want}, not {text!r}")

    return read


positive = _number(float, lambda number: 0 < number < float("inf"), "above 0")
share = _number(float, lambda number: 0 <= number < 1, "at least 0 and below 1")
count = _number(int, lambda number: number >= 1, "at least 1")


def assignment(text: str) -> tuple[str, Any]:
    """KEY=VALUE; the value as in TOML, text also without quotes."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"write {text!r} as KEY=VALUE, such as network.loss=0.2")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


# -- options --------------------------------------------------------------------------------------------------------

SWITCH: Mapping[str, Any] = {"action": "store_true"}
CHOICE: Mapping[str, Any] = {}
"""The command says among what."""
TEXTS: Mapping[str, Any] = {"action": "append", "default": []}

WHERE: Mapping[str, tuple[object, str, str]] = {
    "cluster": (str, "NAME", "the cluster's name, the same at all members"),
    "listen": (str, "HOST:PORT", "where it can be reached"),
    "advertise": (str, "HOST:PORT", "how others reach it, if not by the --listen address (NAT, containers)"),
    "contact": (TEXTS, "HOST:PORT", "a member to ask (publish: its --open address); may be repeated"),
    "create": (SWITCH, "", "create the cluster (implied without --contact)"),
    "bootstrap": (SWITCH, "", "the --contact list is the same at every node, itself in it: one of them creates"),
    "timeout": (positive, "S", "give up after so many seconds"),
}
KEYS: Mapping[str, tuple[object, str, str]] = {
    "secret-file": (Path, "FILE", "a secret that all members share"),
    "tls": ({"nargs": 2}, "DIR NAME", "certificates; this member's is in DIR/NAME"),
    "insecure": (SWITCH, "", "no protection; loopback only"),
}
HOW: Mapping[str, tuple[object, str, str]] = {
    "tickets": (count, "N", "how many may publish at a time, the same at all members"),
    "settings": (Path, "FILE", "a scenario, as `whence plan --toml` prints: the cluster's settings, the same for all"),
    "profile": (str, "NAME", "other defaults of the settings: ccc11, the system of the paper; the same at all members"),
    "directory": (Path, "DIR", "where it keeps what it needs to continue after kill -9"),
    "trust": (TEXTS, "HOST:PORT", "a bridge or open member of this cluster; may be repeated (none: any publisher)"),
    "server": (TEXTS, "HOST:PORT", "a server of this bridge in this cluster, itself too, in the order of taking over"),
    "publish": (SWITCH, "", "take a ticket and publish the lines of standard input"),
    "stay": (SWITCH, "", "the end of input does not end the node"),
    "open": (str, "HOST:PORT", "publish for clients that are not members; they connect here"),
    "client-secret-file": (Path, "FILE", "the secret of these clients (none: they hold the cluster's keys)"),
    "force": (SWITCH, "", "operator override: the voters that do not answer are gone for good"),
    "http": (str, "HOST:PORT", "where browsers find it"),
    "https": ({"nargs": 2}, "CERT KEY", "files of its certificate: it is served by https"),
    "origin": (TEXTS, "URL", "pages of this origin may connect; may be repeated (none: this host's; *: all)"),
    "tokens": (Path, "FILE", "who may come in: lines TOKEN USER, or TOKEN USER read (none: everybody)"),
    "metrics": (str, "HOST:PORT", "serve /metrics (Prometheus), /health and /status there"),
    "all": (SWITCH, "", "events without a scope cross, too"),
    "probe": (float, "S", "seconds to look for another way between the clusters; 0: none"),
    "nick": (str, "NAME", "who you are"),
    "everywhere": (SWITCH, "", "global scope: bridges bring it to other clusters"),
    "copies": (int, "K", "members that must have an event (none: 2, if there are two)"),
    "client": (str, "NAME", "who publishes (none: a new name)"),
    "last": (int, "N", "the last number this client has used"),
}
OTHER: Mapping[str, tuple[object, str, str]] = {
    "order": (CHOICE, "", "of deliveries"),
    "trace": (Path, "DIR", "write every step into this directory; DIR/NAME.jsonl, DIR/NAME.parquet: in this format"),
    "out": (str, "DIR", "where the results are written"),
    "format": (CHOICE, "", "of the input"),
    "engine": (CHOICE, "", "local: judge in this process, without Spark; for what fits into memory"),
    "master": (str, "URL", "a Spark master, such as local[*] (none: audit and sweep start Spark here)"),
    "memory": (str, "SIZE", "of the Spark driver, such as 4g (none: fits the machine)"),
    "set": ({**TEXTS, "type": assignment}, "KEY=VALUE", "another value for a setting; may be repeated"),
    "latencies": (Path, "CSV", "recorded round-trip times between places, in ms"),
    "seed": (int, "S", "the random seed, or the first of them"),
    "seeds": (count, "N", "how many random seeds"),
    "jobs": (count, "N", "processes or threads (none: all cores)"),
    "seconds": (positive, "S", "stop after so long"),
    "members": (int, "N", "how many members"),
    "publishers": (count, "N", "how many of them publish at a time"),
    "rate": (positive, "PER_S", "events/s of each publisher"),
    "fanout": (count, "F", "to how many members a copy goes (none: the planner's choice)"),
    "plot": (Path, "FILE", "draw one event on its way to all members; .png, .svg or .pdf"),
    "loss": (share, "P", "share of messages that are lost"),
    "role": (CHOICE, "", "what the member may do"),
    "report": (Path, "FILE", "write a page with what happened, to look at"),
    "schedule": (SWITCH, "", "print the schedule (faults and publishes) and stop"),
    "shrink": (Path, "FILE", "if a seed fails, write the shortest scenario that still does here"),
    "crash": (share, "P", "share of members that are down"),
    "target": (float, "P", "probability that an event reaches all"),
    "payload": (int, "BYTES", "of an event"),
    "latency": (positive, "MS", "of the network, one way"),
    "mode": (CHOICE, "", "how events spread; auto: eager, or tree where that saves most packets"),
    "toml": (SWITCH, "", "print a scenario for `whence sim` and --settings"),
    "check": (SWITCH, "", "simulate it: predicted next to measured"),
    "events": (count, "N", "of a run"),
    "quick": (SWITCH, "", "seconds instead of minutes, with larger errors"),
    "editing": (Path, "FILE", "a recorded editing session (none: a synthetic one)"),
    "live": (SWITCH, "", "paper: on real sockets here, beside the simulator; demo: a page with buttons"),
    "parser": (str, "REGEX", "shiviz: the log's parser expression, with groups host, clock, event"),
    "delimiter": (str, "REGEX", "shiviz: what separates executions in a log; its group trace, if any, names them"),
    "complete": (SWITCH, "", "the traces of all members are here, to the end: what is not recorded did not happen"),
    "error-rate": (float, "P", "share of deliveries that probabilistic members may invert: is it kept?"),
    "verdicts": (CHOICE, "", "all: a row for each delivery, not only for those that are out of order"),
    "follow": (SWITCH, "", "audit the traces of a live cluster while they grow; verdicts come within seconds"),
    "once": (SWITCH, "", "with --follow: judge what there is and stop"),
    "level": (TEXTS, "", "what to check; may be repeated (none: all that apply)"),
    "certificate": (SWITCH, "", "with --out: also the commit order as a proof"),
    "only": (TEXTS, "SCENARIO", "this scenario; may be repeated"),
    "hold": (float, "S", "seconds that a cause is withheld"),
    "own-network": (SWITCH, "", "the members speak to each other themselves; the kit has proxies on their links"),
    "adapter": (SWITCH, "", "be a node of ours for `whence conform`, on standard input and output"),
    "json": (SWITCH, "", "print JSON: one object, or one a line"),
}
OPTIONS = {**WHERE, **KEYS, **HOW, **OTHER}
"""What each option takes (a type, or more for argparse), what its value is called, and what it means."""

_SECURITY = "secret-file tls insecure"


class Command(NamedTuple):
    """A command. `takes`: options; `=` says a default, `!` that it must be given. `needs`: the extra with the packages
    that it uses. `module`: where its function is in this package, if that is not called like the command."""

    what: str
    takes: str
    examples: str
    choices: Mapping[str, tuple[str, ...]] = {}
    arguments: Mapping[str, dict[str, Any]] = {}
    needs: str = ""
    module: str = ""


LEVELS = ("rc", "ra", "tcc", "cc", "cm", "ccv")

COMMANDS: Mapping[str, Command] = {
    "demo": Command(
        "a live cluster in trouble, audited, and a page to look at",
        "seconds=20 out=out/demo engine=spark live http=127.0.0.1:8600",
        """\
  whence demo                  half a minute; ends with a page to look at
  whence demo --live           people edit and chat through three workers; buttons kill, cut and lose
  whence demo --engine local   without Spark

25 members in five processes here: messages are lost, a process is killed and comes back, a part is cut off and heals.
Then every delivery is audited, and a page shows what happened.
""",
        {"engine": ("spark", "local")},
    ),
    "sim": Command(
        "run a scenario in virtual time, once or with many seeds",
        "seed seeds jobs set latencies json trace report schedule shrink",
        """\
  whence sim demo                              one small cluster with losses, and what became of its events
  whence sim hostile --seed 7 --trace out      everything at once; every step of every member as Parquet in out/
  whence sim hostile-survey --set cluster.mechanism=interval   the same, ordered by a mechanism of the survey
  whence sim world --latencies rtt.csv         between cities, with your own round-trip times
  whence sim hostile --seed 7 --shrink s.toml  if seed 7 fails: the shortest schedule that still does
  whence sim hostile --seeds 100               which of 100 seeds fail, and what was delivered; in processes

Scenarios: docs/simulator.md
""",
        arguments={"scenario": {"metavar": "SCENARIO", "help": "a TOML file, or the name of one of whence's"}},
        module="simulate",
    ),
    "up": Command(
        "start a local cluster of N processes",
        "publishers seconds rate=10 loss=0 order settings profile trace json",
        """\
  whence up 5                                  five processes on this machine; Ctrl-C stops them all
  whence up 8 --publishers 4 --rate 200        four of them publish 200 events a second each
  whence up 5 --loss 0.05 --trace out          5 % of gossip is lost on purpose; what happened goes to out/
  whence up 3 --seconds 10 --json | tail -1    for scripts: one JSON object a second

Each has a directory of its own. Kill one (its process id is in the table) and watch it come back.
""",
        {"order": tuple(PROMISES)},
        {"processes": {"type": count, "metavar": "N", "help": "how many"}},
    ),
    "chat": Command(
        "talk in a cluster",
        f"cluster! nick! listen=127.0.0.1:0 contact {_SECURITY}",
        """\
  whence chat --cluster tea --nick ann --listen 127.0.0.1:7001 --insecure
  whence chat --cluster tea --nick bob --contact 127.0.0.1:7001 --insecure
  fortune | whence chat --cluster tea --nick oracle --contact 127.0.0.1:7001 --insecure

An answer is never shown before its question. There may be more people than tickets: whoever speaks takes one, and
whoever is silent gives it back when it is wanted.
""",
    ),
    "node": Command(
        "take part in a cluster: lines in, deliveries out",
        f"cluster! listen=127.0.0.1:0 advertise contact create bootstrap timeout {_SECURITY} order tickets settings "
        "profile directory trust publish stay open client-secret-file force metrics trace json",
        """\
  whence node --cluster lobby --listen 127.0.0.1:7001 --insecure --publish
  whence node --cluster lobby --contact 127.0.0.1:7001 --insecure --publish
  whence node --cluster lobby --contact 127.0.0.1:7001 --insecure --order reliable --json | jq .payload
  # without tickets: everybody may publish at any time (docs/probabilistic.md)
  whence node --cluster free --listen 127.0.0.1:7002 --insecure --order probabilistic --publish
  # between machines, with the keys of `whence keys`
  tail -f log | whence node --cluster lobby --listen 10.0.0.6:7001 --contact 10.0.0.5:7001 --secret-file s.key --publish
  # as a service, which survives kill -9 and is watched; all nodes have the same contacts (docs/operations.md)
  whence node --cluster lobby --listen 10.0.0.6:7001 --bootstrap --contact 10.0.0.5:7001 --contact 10.0.0.6:7001 \\
      --tls /etc/whence/keys carol --publish --stay --directory /var/lib/whence/lobby --metrics 127.0.0.1:9464
  # a member that only votes on who may publish: with it, two publishers survive the loss of either. Give it a port
  whence node --cluster lobby --listen 127.0.0.1:7009 --contact 127.0.0.1:7001 --insecure --stay > /dev/null
  # a member that publishes for clients that are not members (`whence publish`)
  whence node --cluster lobby --contact 127.0.0.1:7001 --insecure --open 127.0.0.1:7101
  # operator override: the voters that do not answer are gone for good; the member at --contact goes on with the rest
  whence node --cluster lobby --contact 127.0.0.1:7002 --insecure --force

Without --contact a node creates the cluster. Lines of the standard input are events; the end of input ends the node,
and so do Ctrl-C and SIGTERM: the ticket is given back and the others are told (a second Ctrl-C ends it at once).
Deliveries go to standard output: the publisher's address, a tab, the line; or JSON. Notices go to standard error.

--force is refused while an owner or enough voters are heard. If the lost voters live after all, both sides publish
under the same tickets until they hear of each other; then the older side stops.
""",
        {"order": tuple(PROMISES)},
    ),
    "status": Command(
        "who is there: ask any member",
        "json",
        """\
  whence status 127.0.0.1:9464   members, tickets, lag, votes; who vanished, who was refused and why

Asks the --metrics port of a member, which asks all others. Exit code 0: it is well, 1: it is not, 2: no answer.
""",
        arguments={"address": {"metavar": "HOST:PORT", "help": "where the member serves its metrics"}},
    ),
    "bridge": Command(
        "join clusters: events cross, causal order is kept",
        f"cluster listen=127.0.0.1:0 advertise contact timeout=10 {_SECURITY} order tickets settings profile trust "
        "server directory all probe=2 metrics trace json",
        """\
  whence bridge --cluster lobby --contact 127.0.0.1:7001 --insecure --cluster hall --contact 127.0.0.1:7002 --insecure
  # as a service, which survives kill -9 and is watched; each cluster has its own keys
  whence bridge --directory /var/lib/whence/bridge --metrics 127.0.0.1:9464 \\
      --cluster lobby --listen 10.0.0.7:7001 --contact 10.0.0.5:7001 --tls /etc/whence/lobby bridge \\
      --cluster hall --listen 10.0.0.7:7002 --contact 10.0.1.5:7001 --secret-file hall.key

Where, keys, --order (none: the strongest) and the options to --server are of the cluster named before them. A bridge
with --server has several servers: when one dies, the next takes over. Publishers choose what crosses: in
Python `publisher.publish(whence.live.everywhere(b"..."))`, in the shell `whence publish --everywhere`. Bridges
join clusters in a tree: one that would close a circle is refused. docs/survey.md
""",
        {"order": ("causal", "reliable", "probabilistic")},
    ),
    "serve": Command(
        "rooms for browsers, beside static files",
        f"cluster! listen=127.0.0.1:0 advertise contact create bootstrap timeout=10 {_SECURITY} tickets=8 settings "
        "profile directory http=127.0.0.1:8000 https origin tokens trace json",
        """\
  whence serve site --cluster chat --listen 127.0.0.1:7001 --insecure
  whence serve site --cluster chat --contact 127.0.0.1:7001 --insecure --http 127.0.0.1:8001
  whence serve site --cluster chat --listen 10.0.0.6:7001 --bootstrap --contact 10.0.0.5:7001 --contact 10.0.0.6:7001 \\
      --secret-file s.key --http 0.0.0.0:443 --https site.crt site.key --origin https://chat.example --tokens tokens

Each is a worker, and a member of the cluster; put a balancer before them. A page of the site joins a room by
import { join } from "/rooms/whence.js". docs/web.md
""",
        arguments={"site": {"nargs": "?", "metavar": "DIR", "type": Path, "help": "static files"}},
        needs="net,web",
    ),
    "publish": Command(
        "publish in a cluster without being a member",
        f"cluster! contact! {_SECURITY} timeout=60 everywhere copies client last=0 json",
        """\
  whence publish --cluster lobby --contact 127.0.0.1:7101 --contact 127.0.0.1:7102 --insecure hello
  tail -f log | whence publish --cluster lobby --contact 10.0.0.5:7101 --tls /etc/whence/keys log --everywhere

The members at --contact (`whence node --open`) publish, each event once, even if one of them dies meanwhile. Two of
them have to have an event before the next one is sent (--copies).
For a script that may die, too: --client NAME --last N goes on after number N, and publishes nothing twice.
""",
        arguments={"text": {"nargs": "*", "metavar": "TEXT", "help": "an event each (none: lines of standard input)"}},
    ),
    "keys": Command(
        "make a cluster's keys, issue them to members, replace them",
        "role=publisher",
        """\
  whence keys init keys                        the cluster's CA, shared secret and publishers' key, in keys/
  whence keys issue keys alice                 what alice needs, in keys/alice/: copy that to her machine
  whence keys issue keys wall --role receiver  may only receive: its events are refused
  whence keys revoke keys wall                 its certificate counts no more, wherever the new list is
  whence keys rotate keys                      the next of three steps to a new CA and secret, without a pause
How the members get them: docs/operations.md
""",
        {"role": ("publisher", "receiver")},
        {
            "step": {"choices": ("init", "issue", "rotate", "revoke"), "help": "what to do"},
            "directory": {"metavar": "DIR", "type": Path, "help": "of the cluster's keys"},
            "name": {"nargs": "?", "metavar": "NAME", "help": "issue, revoke: the member"},
        },
    ),
    "audit": Command(
        "did order ever break in these traces, where, and why",
        "out! format=whence order parser delimiter complete error-rate verdicts=sparse engine=auto "
        "follow once master memory json",
        """\
  whence audit traces --out verdicts                          a verdict for every delivery; tables and a page
  whence audit traces --out verdicts --engine spark           on Spark, which is taken for more than 5 million rows
  whence audit traces --out verdicts --follow                 while the traces grow
  whence audit logs --out verdicts --format shiviz            logs with vector clocks
  whence audit spans.json --out verdicts --format otel        OpenTelemetry spans, OTLP JSON

Exit code 0: clean, 1: violations found, 2: bad input, 3: no violation, but something cannot be judged because the
traces are not complete (table doubts), or too short for an --error-rate (table rates). docs/pipeline.md
""",
        {
            "format": ("whence", "shiviz", "otel"),
            "order": ("unordered", "fifo", "causal", "reliable"),
            "verdicts": ("sparse", "all"),
            "engine": ("auto", "spark", "local"),
        },
        {
            "paths": {
                "nargs": "+",
                "metavar": "PATH",
                "help": "files, directories, globs; s3://, gs://, abfss://, hdfs://",
            }
        },
        "scale,trace",
    ),
    "history": Command(
        "did a database keep its promise to its clients",
        "level format=auto out certificate json",
        """\
  whence history store/jepsen/history.edn            the story of the anomaly, if there is one
  whence history logs/ --level tcc --json            every history in a folder, one JSON object a line
  whence history run.txt --out out --certificate     tables, a page with the cycle, and a proof of what holds

Client histories (reads and writes in transactions and sessions) are checked for read committed, read atomic and causal
consistency. Exit code 0: every level holds, 1: one is violated, 2: bad input. docs/histories.md
""",
        {"level": LEVELS, "format": ("auto", "text", "dbcop", "cobra", "elle", "json", "parquet", "table")},
        {"paths": {"nargs": "+", "type": Path, "metavar": "PATH", "help": "histories, or folders of them"}},
        "scale",
    ),
    "conform": Command(
        "try on any system what breaks causal broadcast",
        "members=3 timeout hold=1 only trace own-network adapter order=reliable json",
        """\
  whence conform                                         the scenarios, and what each of them breaks
  whence conform -- whence conform --adapter             ours
  whence conform -- python examples/conform_vector.py    another system, in one file
  whence conform --only triangle --trace out -- ./node   one scenario; its trace for `whence audit out`

Starts one COMMAND process per member, speaks Maelstrom's message format with it, is its network, and tries what breaks
causal broadcast. Exit code 0: all passed (or is not claimed), 1: something failed, 2: bad input. docs/conform.md
""",
        {"order": ("fifo", "causal", "reliable")},
        {"system": {"nargs": "*", "metavar": "COMMAND", "help": "starts one member; put -- before it"}},
    ),
    "plan": Command(
        "settings for a cluster, and what they will do",
        "members! publishers! rate! loss=0.01 crash=0 target=0.99999 payload=100 latency=10 order=causal mode=eager "
        "toml check seeds=4 events=500 json",
        """\
  whence plan --members 125 --publishers 25 --rate 1 --loss 0.05
  whence plan --members 12 --publishers 3 --rate 2 --target 0.9 --check --seeds 2 --events 40
  whence plan --members 12 --publishers 3 --rate 5 --toml > mine.toml
  whence sim mine.toml; whence up 12 --settings mine.toml

From members, load, loss and crashes to settings, predictions and their errors. docs/planner.md
""",
        {"order": ("causal", "reliable"), "mode": ("eager", "tree", "auto")},
    ),
    "sweep": Command(
        "run a grid of settings, many seeds each, on Spark; resumable",
        "out! master json",
        """\
  whence sweep grid.toml --out results   one result row per setting and seed; the same command goes on

The grid is a TOML file: the settings, and how many seeds of each. docs/pipeline.md
""",
        arguments={"grid": {"type": Path, "metavar": "GRID", "help": "a TOML file"}},
        needs="spark",
    ),
    "scale": Command(
        "causal order at 10^8 deliveries and more: the errors of clocks; gossip and trees among a million members",
        "members publishers rate events fanout loss latency mode order set latencies seed=0 jobs plot json",
        """\
  whence scale gossip --members 1000000 --events 20 --fanout 16 --loss 0.01 --order causal
  whence scale gossip --members 100000 --mode tree --set crash=0.5 --set crash_at=1 --plot tree.png
  whence scale --set processes=2000 --set entries=200 --set keys=3 --set deliveries=1e7

The array engine: (N, R, K) clocks in the network of PCO17, with an exact oracle. The settings, times in ms: processes,
entries, keys, deliveries, rate (messages/s of all), delay, spread, skew, loss, retry, churn, memory, alerts.
With `gossip`: how events spread among --members, next to what `whence plan` says. Also: termination, view, recovery, k,
buffer, crash, crash_at, churn, away, forget, tenure, payload. docs/scale.md
""",
        {"order": ("unordered", "fifo", "causal", "reliable"), "mode": ("eager", "rounds", "tree")},
        {"what": {"nargs": "?", "choices": ("clocks", "gossip"), "default": "clocks", "help": "or members"}},
    ),
    "paper": Command(
        "every claim of the papers and its verdict; redo one, or all",
        "out quick seed=0 editing live json",
        """\
  whence paper                             the table of all claims
  whence paper pco17/fig3 --quick          one figure, table or theorem: data (CSV, Parquet), plot, claims.json
  whence paper all --out out/claims        everything, and the page of all claims (hours)
""",
        arguments={"name": {"nargs": "?", "metavar": "NAME", "help": "such as pco17/fig3, or all; none: the table"}},
    ),
}
CONTENTS = {
    "see it work": ("demo", "sim", "up", "chat"),
    "run it": ("node", "serve", "status", "bridge", "publish", "keys"),
    "ask what happened": ("audit", "history"),
    "break it": ("conform",),
    "size it, compare it": ("plan", "sweep", "scale", "paper"),
}
"""How `whence --help` shows them."""

# -- argparse -------------------------------------------------------------------------------------------------------


class _Help(argparse.RawDescriptionHelpFormatter):
    """Says defaults where there are some."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        said = action.option_strings and action.default not in (None, False, argparse.SUPPRESS, [])
        return f"{action.help} (default %(default)s)" if said else action.help


class _NextSide(argparse.Action):
    """`--cluster NAME` of a bridge: what follows is about this cluster. The last one stays in the namespace itself."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        of_side = [a.dest for a in parser._actions if a.dest.replace("_", "-") in SIDE]
        given = {dest: getattr(namespace, dest) for dest in of_side}
        if namespace.cluster is not None:
            namespace.sides = [*namespace.sides, argparse.Namespace(**given)]
        elif early := [dest for dest in of_side if given[dest] != parser.get_default(dest)]:
            parser.error(f"--{early[0].replace('_', '-')} is about a cluster: --cluster NAME comes before it")
        for dest in of_side:
            setattr(namespace, dest, parser.get_default(dest))
        namespace.cluster = values


SIDE = {*WHERE, *KEYS, "order", "tickets", "settings", "profile", "trust", "server"}
"""The options of one cluster of a bridge."""


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(
        prog="whence", description="Causally ordered group communication at gossip scale.", formatter_class=_Help
    )
    top.add_argument("-v", dest="talk", action="count", default=0, help="say more: what the parts log (-vv: all of it)")
    top.add_argument("--version", action="version", version=f"whence {whence.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", help="one of those below", required=True)
    for title, names in CONTENTS.items():
        top.epilog = f"{top.epilog or ''}{title}:\n" + "".join(f"  {n:9} {COMMANDS[n].what}\n" for n in names) + "\n"
        for name in names:
            _add(commands.add_parser(name, formatter_class=_Help), name, COMMANDS[name])
    top.epilog = f"{top.epilog}Each has its own --help, with examples. More: docs/README.md\n"
    return top


def _add(made: argparse.ArgumentParser, called: str, command: Command) -> None:
    made.description = f"{command.what[0].upper()}{command.what[1:]}."
    made.epilog = f"examples:\n{command.examples}"
    made.set_defaults(module=command.module or called, needs=command.needs, sides=[])
    for argument, more in command.arguments.items():
        made.add_argument(argument, **more)
    groups: list[tuple[Mapping[str, object], Any]] = [(OTHER, made)]
    if _SECURITY in command.takes:
        groups.append((WHERE, made.add_argument_group("where")))
        keys = made.add_argument_group("who may take part, one of")
        # A bridge has one of them for each of its clusters.
        groups.append((KEYS, keys if called == "bridge" else keys.add_mutually_exclusive_group()))
        groups.append((HOW, made.add_argument_group("how")))
    for said in command.takes.split():
        name, _, default = said.rstrip("!").partition("=")
        takes, metavar, help = OPTIONS[name]
        more = dict(takes) if isinstance(takes, Mapping) else {"type": takes}
        if metavar:
            more["metavar"] = tuple(metavar.split()) if "nargs" in more else metavar
        if name in command.choices:
            more["choices"] = command.choices[name]
        if default:
            more["default"] = more.get("type", str)(default)
        if said.endswith("!"):
            more["required"] = True
        if name == "cluster" and called == "bridge":
            more["action"] = _NextSide
        group = next((group for names, group in groups if name in names), made)
        group.add_argument(f"--{name}", help=help, **more)
