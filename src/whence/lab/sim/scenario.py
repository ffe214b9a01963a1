"""Scenarios: TOML files that describe a simulation (docs/simulator.md). Parsing is strict."""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from whence.core.config import Config, Positive, Settings, defaults
from whence.core.order import Contract
from whence.errors import ConfigError
from whence.lab.sim.actions import KINDS, Action, names_in, read_action, write_action
from whence.lab.sim.settings import Count, Duration, Share, Size, parse_duration, read, show_duration, to_toml, write

Rate = Annotated[float, msgspec.Meta(ge=0)]

MS = 10**6
_PACKAGED = files("whence.lab") / "scenarios"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The load. Give `rate` or `per_second`."""

    rate: Rate = 0.0
    """Events per coordinator and round (the papers' p)."""
    per_second: Rate = 0.0
    """Events per second in the whole cluster, instead of `rate`."""
    batch: Positive = 1
    """Events per frame."""
    payload: Size = 16
    """Bytes per event; at least 8, so that payloads are unique."""
    start: Duration | None = None
    """Default: when the ring should have formed (`Scenario.ring_time`)."""
    stop: Duration | None = None
    """Default: the end of `duration`."""
    total: Count | None = None
    """At most this many events."""
    copies: Positive = 1
    """Ask after each publish whether so many members hold the event (`publish(..., copies=k)`)."""


class ScenarioCluster(Settings, frozen=True, kw_only=True):
    """One cluster: the settings of any cluster, over the defaults of a `profile` if the file names one, and what only a
    simulation has. Members, loss, rate, round and latency follow from the rest of the scenario."""

    name: str = "main"
    processes: tuple[str, ...] | None = None
    """Names of the processes that are members; default all."""
    tickets: Positive = 5
    coordinators: Count | tuple[str, ...] | None = None
    """Which processes, or how many (the first ones), want a ticket from the beginning; default as many as tickets."""
    founder: str = ""
    """The designated founder of the ring; default the first member."""
    order: str | dict[str, float] = "causal"
    """One order for all, or a table order -> number or share of members; the first order takes the rest."""
    order_of: dict[str, str] = {}  # noqa: RUF012
    """Process -> order; overrides `order`."""
    roles: bool = False
    """Publishers sign frames and news, and liars may only receive (SECURITY.md)."""
    liars: Count = 0
    """The last so many members lie, as often as `chaos.lie` says. Nothing is due to them."""
    workload: Workload = Workload()

    @property
    def free(self) -> bool:
        """Whether the cluster has no tickets."""
        orders = [self.order] if isinstance(self.order, str) else list(self.order)
        known = self.contract is not None or bool(self.mechanism)
        return known or "probabilistic" in (*orders, *self.order_of.values())


class NetworkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The network between the processes."""

    latency: Literal["constant", "normal", "recorded"] = "constant"
    mean: Duration = 10 * MS
    """One-way delay (constant, normal)."""
    sd: Duration = 0
    """Standard deviation of the delay of each message (normal, recorded)."""
    file: str = ""
    """Recorded: a CSV matrix of round-trip times in ms; relative to the scenario file."""
    cities: tuple[str, ...] = ()
    """Recorded: where the members are, in turn; default all rows of the matrix."""
    loss: Share = 0.0
    dup: Share = 0.0
    """Share of datagrams that arrive twice."""
    reorder: Share = 0.0
    """Share of datagrams that are delayed by a random time of at most `reorder_by`."""
    reorder_by: Duration = 50 * MS
    retransmit: Duration = 0
    """Streams: delay that each lost transmission adds; default four times the mean delay."""
    uplink: Size = 0
    """Bytes per second that a process can send; 0: no limit."""
    queue: Size = 1 << 18
    """Size of the uplink's queue in bytes; the rest is dropped and counted."""


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of the members' clocks: drawn per process, uniformly up to these."""

    offset: Duration = 0
    drift: Count = 0
    """Parts per million, either way."""


class Chaos(msgspec.Struct, frozen=True, kw_only=True):
    """Random faults, drawn from the seed before the run. Each interval is the mean time between two faults of a kind
    (exponential); absent means never. Each duration is drawn between 0.5 and 1.5 times the given one."""

    start: Duration = 0
    stop: Duration | None = None
    """Default: the end of `duration`. Every random fault is over by then."""
    spare: tuple[str, ...] = ()
    """Processes that never crash or leave."""
    crash: Duration | None = None
    down: Duration = 1000 * MS
    disk: Share = 0.5
    """Share of the crashed that come back with their disk."""
    leave: Duration | None = None
    away: Duration = 1000 * MS
    partition: Duration | None = None
    split: Duration = 1000 * MS
    """How long a partition lasts."""
    cut: Duration | None = None
    cut_for: Duration = 1000 * MS
    slow: Duration | None = None
    slow_by: Duration = 200 * MS
    slow_for: Duration = 1000 * MS
    oneway: Share = 0.3
    """Share of partitions and cuts that work in one direction only."""
    churn: Duration | None = None
    """A coordinator resigns, or another member wants a ticket."""
    clock: Duration | None = None
    clock_drift: Count = 200
    hostile: Duration | None = None
    lie: Duration | None = None
    """Each liar of a cluster sends ten lies."""


class SimScenario(msgspec.Struct, frozen=True, kw_only=True):
    """A whole simulation. `[[fault]]` tables are its explicit actions."""

    about: str = ""
    seed: int = 0
    """Used when none is given on the command line."""
    members: Positive | tuple[str, ...] = 5
    """How many processes (named n0, n1, ...), or their names."""
    absent: tuple[str, ...] = ()
    """Processes that are not running at the beginning; a `start` action starts them."""
    bootstrap: Literal["preset", "join"] = "preset"
    """preset: all processes run at time zero and know each other. join: one founds, the others join by snapshot."""
    join_every: Duration | None = None
    """join: time between two arrivals; default one round."""
    round: Duration = 100 * MS
    duration: Duration = 10_000 * MS
    """How long there are faults and publishes."""
    settle: Duration = 5_000 * MS
    """The time after that, without faults and publishes, before the final checks."""
    wire: bool = False
    """Encode and decode every message, as in a live cluster."""
    snapshot_delay: Duration = 0
    """How long an application takes to hand over its captured state."""
    operator: Duration | None = None
    """How long a core is empty before the operator founds it again; default 30 rounds."""
    network: NetworkSettings = NetworkSettings()
    clocks: Clocks = Clocks()
    cluster: tuple[ScenarioCluster, ...] = (ScenarioCluster(),)
    chaos: Chaos | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All processes."""
        return tuple(f"n{i}" for i in range(self.members)) if isinstance(self.members, int) else self.members

    def members_of(self, cluster: ScenarioCluster) -> tuple[str, ...]:
        return self.names if cluster.processes is None else cluster.processes

    def founder_of(self, cluster: ScenarioCluster) -> str:
        return cluster.founder or self.members_of(cluster)[0]

    def coordinators_of(self, cluster: ScenarioCluster) -> tuple[str, ...]:
        """The processes that want a ticket from the beginning."""
        usual = len(self.members_of(cluster)) if cluster.free else cluster.tickets
        wanted = usual if cluster.coordinators is None else cluster.coordinators
        return self.members_of(cluster)[:wanted] if isinstance(wanted, int) else wanted

    def liars_of(self, cluster: ScenarioCluster) -> tuple[str, ...]:
        """The members that lie."""
        members = self.members_of(cluster)
        return members[len(members) - cluster.liars :]

    def ring_time(self, cluster: ScenarioCluster) -> int:
        """When workloads start by default. The founder waits out its quarantine. A council then admits newcomers at
        once. A neighbour admits one at a time and waits about a ring round for its confirmation (docs/ring.md, rule
        10), so a ring of m grows like a tree of depth log2 m."""
        if cluster.free:
            return self.round
        ring = settings_of(self, cluster, self.network.mean).config(cluster.tickets).ring
        depth = 2 * max(1, len(self.coordinators_of(cluster))).bit_length()
        if ring.protocol == "council":
            return ring.quarantine_ns + self.round * (4 + depth)
        return ring.round_ns * (8 + depth)

    def orders(self, cluster: ScenarioCluster, seed: int) -> dict[str, str]:
        """Process -> order, drawn from the seed."""
        names = self.members_of(cluster)
        if isinstance(cluster.order, str):
            chosen = dict.fromkeys(names, cluster.order)
        else:
            shares = list(cluster.order.items())
            shuffled = sorted(names)
            random.Random(f"{seed}/orders/{cluster.name}").shuffle(shuffled)
            counts = [int(s if s >= 1 else s * len(names) + 0.5) for _, s in shares[1:]]
            rest = [o for (o, _), n in zip(shares[1:], counts, strict=True) for _ in range(n)]
            chosen = dict(zip(shuffled, rest + [shares[0][0]] * len(names), strict=False))
        return {n: cluster.order_of.get(n, chosen[n]) for n in names}


KNOWN = ("members", "loss", "rate", "round_ns", "latency_ns")
"""Settings that follow from the scenario, so that a `[cluster]` table cannot give them."""


def settings_of(scenario: SimScenario, cluster: ScenarioCluster, latency: int) -> Settings:
    """The settings of the cluster, with what the scenario knows of its load and its network."""
    w = cluster.workload
    coordinators = max(1, len(scenario.coordinators_of(cluster)))
    events = w.rate * coordinators or w.per_second * scenario.round / 1e9
    given = {name: getattr(cluster, name) for name in Settings.__struct_fields__}
    given |= {"members": len(scenario.members_of(cluster)), "loss": scenario.network.loss}
    given |= {"rate": events / w.batch or 1.0, "round_ns": scenario.round, "latency_ns": latency}
    return Settings(**given | {"contract": cluster.contract or _default_contract(scenario, cluster, latency)})


def config_of(scenario: SimScenario, cluster: ScenarioCluster, order: str, latency: int) -> Config:
    """What a member of the cluster with this order gets."""
    return settings_of(scenario, cluster, latency).config(cluster.tickets, order, cluster.name)  # type: ignore[arg-type]


def _default_contract(scenario: SimScenario, cluster: ScenarioCluster, latency: int) -> Contract | None:
    """The contract of order `probabilistic` if none is given, the same for all members."""
    if not cluster.free or cluster.mechanism:
        return None
    w = cluster.workload
    publishers = max(1, len(scenario.coordinators_of(cluster)))
    rate = (w.rate * publishers * 1e9 / scenario.round or w.per_second or 1.0) / w.batch
    hop = scenario.round / 2 if cluster.mode == "rounds" else latency
    return Contract(rate=rate, delay=2 * hop / 1e9, members=len(scenario.members_of(cluster)))


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario file as read: settings, explicit actions, and where it came from."""

    scenario: SimScenario
    faults: tuple[Action, ...] = ()
    """Publishes, too."""
    path: str = ""
    variant: str = ""
    """Distinguishes a changed scenario from its file, since one trace may contain runs of both."""

    @property
    def name(self) -> str:
        """The file's name without suffix, and the variant."""
        return (Path(self.path).stem or "scenario") + (f"-{self.variant}" if self.variant else "")


def packaged() -> list[str]:
    """The names of the scenarios that come with whence."""
    return sorted(p.name.removesuffix(".toml") for p in _PACKAGED.iterdir() if p.name.endswith(".toml"))


def load(name: str | Path, data: Path | None = None, settings: Mapping[str, Any] | None = None) -> Loaded:
    """Read a scenario: a `.toml` file, or the one of this name that comes with whence.

    `data` overrides the file of the recorded latencies. `settings` override single values: the name of one is its place
    in the file, such as `network.loss`, or `cluster.order` (of every cluster)."""
    text, path = _text(name)
    if not text.strip():
        raise ConfigError(f"{name}: no scenario: the file is empty")
    table = _table_of(text, name)
    for key, value in (settings or {}).items():
        _put(table, key.split("."), value)
    if data is not None:
        _put(table, ["network", "file"], str(data.absolute()))
        _put(table, ["network", "latency"], "recorded")
    return _parse(table, path, "" if settings else text)


def parse(text: str, path: str = "") -> Loaded:
    """Read scenario text; every error names the file and the key."""
    return _parse(_table_of(text, path or "scenario"), path, text)


def _text(name: str | Path) -> tuple[str, str]:
    """The text of a scenario, and its path."""
    # A packaged one is a resource, because on Spark workers this package is a zip file.
    path = Path(name)
    place = path if path.suffix == ".toml" or path.exists() else _PACKAGED / f"{name}.toml"
    if place is not path and not place.is_file():
        raise ConfigError(f"no scenario {str(name)!r}: give a .toml file or one of: {', '.join(packaged())}")
    try:
        return place.read_text(encoding="utf-8"), str(place)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read scenario {name}: {reason}") from None


def _table_of(text: str, name: str | Path) -> dict[str, Any]:
    """The table over that of the scenario that it builds on (`base`): tables are merged, anything else replaced."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not TOML: {error}") from None

    def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
        both = [k for k in above if isinstance(above[k], dict) and isinstance(below.get(k), dict)]
        tables = [k for k in both if k not in ("order", "order_of")]  # one value each, though written as a table
        return {**below, **above, **{k: merged(below[k], above[k]) for k in tables}}

    base = table.pop("base", None)
    return table if base is None else merged(_table_of(_text(base)[0], base), table)


def _put(table: dict[str, Any], place: list[str], value: object) -> None:
    """Set the value at the place; a list of tables means each of them."""
    key, rest = place[0], place[1:]
    inner = table.get(key)
    if not rest:
        table[key] = value
    elif isinstance(inner, list) and all(isinstance(item, dict) for item in inner):
        for item in inner:
            _put(item, rest, value)
    else:
        if not isinstance(inner, dict):
            inner = table[key] = {}
        _put(inner, rest, value)


def _parse(table: dict[str, Any], path: str, text: str) -> Loaded:
    try:
        return _loaded(table, path)
    except ConfigError as error:
        raise ConfigError(f"{path or 'scenario'}: {_line(text, str(error))}{error}") from None


_PLACE = re.compile(r"(?:unknown key '|at `|^(?!expected|object))(\w+)(?:\[(\d+)\])?(?:\.(\w+))?", re.IGNORECASE)
"""A key in the words of an error."""


def _line(text: str, said: str) -> str:
    """Where the key stands that an error names (`fault[2].who`, `network.loss`); nothing if that is not to be seen."""
    found = _PLACE.search(said)
    table, index, key = found.groups() if found else ("", None, None)
    lines = text.splitlines()
    heads = [n for n, line in enumerate(lines) if re.match(rf"\s*(\[+\s*)?{table}\s*[].=]", line)]
    if len(heads) == 1 and index is not None:  # [[fault]] once; or `fault = [`, with a table on each line
        heads = [n for n in range(heads[0], len(lines)) if lines[n].lstrip().startswith(("[[", "{"))] or heads
    if int(index or 0) >= len(heads) or (index is None and len(heads) > 1):
        return ""
    at = heads[int(index or 0)]
    for n in range(at + 1, len(lines)):
        if lines[n].lstrip().startswith("["):
            break
        if key and re.match(rf"\s*{key}\s*=", lines[n]):
            at = n
    return f"line {at + 1}: "


def _loaded(table: dict[str, object], path: str) -> Loaded:
    round_ns = parse_duration(table.get("round", "100ms"), "round")
    if round_ns < 1:
        raise ConfigError("round: must be longer than 0")
    faults = _actions(table.pop("fault", []), round_ns)
    clusters = table.get("cluster")
    if clusters is not None:
        table["cluster"] = _profiled([clusters] if isinstance(clusters, dict) else clusters)
    try:
        scenario = read(SimScenario, table, round_ns=round_ns)
    except ConfigError as error:
        if str(error).startswith("unknown key") and "." not in str(error).split(";")[0]:
            raise ConfigError(f"{error}, fault") from None
        raise
    check(scenario, faults)
    return Loaded(scenario=scenario, faults=faults, path=path)


def _profiled(clusters: object) -> object:
    """The tables of the clusters, each over the defaults of its profile."""
    if not isinstance(clusters, list) or not all(isinstance(c, dict) for c in clusters):
        return clusters
    return [{**write(defaults(c.pop("profile", ""))), **c} for c in clusters]


def _actions(tables: object, round_ns: int) -> tuple[Action, ...]:
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise ConfigError("fault: write it as [[fault]] tables")
    return tuple(read_action(t, f"fault[{i}]", round_ns) for i, t in enumerate(tables))


def check(scenario: SimScenario, actions: tuple[Action, ...]) -> None:
    """Check what types cannot: names and orders exist, and settings are consistent."""
    names = scenario.names
    known = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    if len(set(names)) < len(names):
        raise ConfigError("members: two processes have the same name")

    def want(name: str, where: str) -> None:
        if name not in names:
            raise ConfigError(f"{where}: no process is called {name!r}; there are: {known}")

    for name in scenario.absent:
        want(name, "absent")
    if not scenario.cluster or len({c.name for c in scenario.cluster}) < len(scenario.cluster):
        raise ConfigError("cluster: there must be at least one, each with a name of its own")
    for cluster in scenario.cluster:
        _check_cluster(scenario, cluster, want)
    clusters = [c.name for c in scenario.cluster]
    for number, action in enumerate(actions):
        where = f"fault[{number}] ({type(action).__struct_config__.tag} at {show_duration(action.at)})"
        for name in names_in(action):
            want(name, where)
        if getattr(action, "cluster", "") not in ("", *clusters):
            raise ConfigError(f"{where}: no cluster is called {action.cluster!r}; there are: {', '.join(clusters)}")  # type: ignore[union-attr]
        if isinstance(action, KINDS["hostile"] | KINDS["lie"]) and not scenario.wire:
            raise ConfigError(f"{where}: bad bytes need `wire = true`")
    if scenario.chaos is not None:
        for name in scenario.chaos.spare:
            want(name, "chaos.spare")
        if not (scenario.chaos.hostile is None and scenario.chaos.lie is None) and not scenario.wire:
            raise ConfigError("chaos.hostile, chaos.lie: bad bytes need `wire = true`")
    if scenario.network.latency == "recorded" and not scenario.network.file:
        raise ConfigError("network.file: recorded latencies need a CSV file (here, or --latencies on the command line)")


def _check_cluster(scenario: SimScenario, cluster: ScenarioCluster, want: Callable[[str, str], None]) -> None:
    where = f"cluster {cluster.name}"
    for name in (*(cluster.processes or ()), *cluster.order_of):
        want(name, where)
    for name in KNOWN:
        if getattr(cluster, name) != getattr(Settings(), name):
            raise ConfigError(f"{where}: {name} follows from the scenario; leave it out")
    members = scenario.members_of(cluster)
    if not members:
        raise ConfigError(f"{where}: has no members")
    if isinstance(cluster.coordinators, int) and cluster.coordinators > len(members):
        raise ConfigError(f"{where}: {cluster.coordinators} coordinators of {len(members)} members")
    for name in (*scenario.coordinators_of(cluster), scenario.founder_of(cluster)):
        if name not in members:
            raise ConfigError(f"{where}: coordinator or founder {name!r} is not a member of it")
    if liars := set(scenario.liars_of(cluster)) & {*scenario.coordinators_of(cluster), scenario.founder_of(cluster)}:
        raise ConfigError(
            f"{where}: {min(liars)} is a liar and a coordinator or the founder; liars are the last members"
        )
    if cluster.total and "total" not in (cluster.order, cluster.order_of.get(scenario.founder_of(cluster))):
        raise ConfigError(f"{where}: the founder of a cluster with total order is in total order: order_of")
    orders = [cluster.order] if isinstance(cluster.order, str) else list(cluster.order)
    for order in (*orders, *cluster.order_of.values()):
        try:
            config_of(scenario, cluster, order, scenario.network.mean)
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from None
    if isinstance(cluster.order, dict):
        numbers = list(cluster.order.values())
        total = sum(n if n >= 1 else n * len(members) for n in numbers)
        if not numbers or min(numbers) < 0 or total > len(members) + 0.5:
            raise ConfigError(f"{where}: order shares do not fit {len(members)} members")
    if cluster.workload.rate and cluster.workload.per_second:
        raise ConfigError(f"{where}: workload has both rate and per_second; give one")


def dump(loaded: Loaded) -> str:
    """The inverse of `parse`."""
    table = write(loaded.scenario)
    if loaded.faults:
        table["fault"] = [write_action(a) for a in loaded.faults]
    return to_toml(table)
