"""Scenarios: TOML files that describe a simulation (docs/simulator.md). Parsing is strict."""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from whence.core.config import Config, Mode, Requirements
from whence.core.order import Contract, SurveyConfig
from whence.core.ring import RingName
from whence.errors import ConfigError
from whence.lab.sim.actions import KINDS, Action, Publish, names_in, read_action, write_action
from whence.lab.sim.settings import Count, Duration, Share, Size, parse_duration, read, to_toml, write

Positive = Annotated[int, msgspec.Meta(ge=1)]
Rate = Annotated[float, msgspec.Meta(ge=0)]

MS = 10**6


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


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster. `Requirements` computes what is left out."""

    name: str = "main"
    members: tuple[str, ...] | None = None
    """Names of the processes that are members; default all."""
    tickets: Positive = 5
    coordinators: Count | tuple[str, ...] | None = None
    """Which processes, or how many (the first ones), want a ticket from the beginning; default as many as tickets."""
    founder: str = ""
    """The designated founder of the ring; default the first member."""
    order: str | dict[str, float] = "causal"
    """One order for all, or a table order -> number or share of members; the first order takes the rest."""
    order_of: dict[str, str] = {}
    """Process -> order; overrides `order`."""
    mode: Mode = "rounds"
    """How events spread (docs/protocols.md)."""
    view: Literal["full", "partial"] = "full"
    recovery: Literal["off", "R1", "Rk"] = "R1"
    k: Positive | None = None
    """Members asked per missing range with Rk."""
    once: bool = False
    """Recovery as CCC11 prints it: each missing event is requested once, and only if a later event shows it."""
    replacement: Literal["fifo", "age"] = "fifo"
    """What leaves a full recovery buffer: what came first, or what is oldest (CCC11 section 5.2)."""
    ring: RingName | None = None
    """Who decides who may publish (docs/ring.md): `council` (default) or `neighbours`."""
    ring_k: Positive | None = None
    """Crashes in one neighbourhood, or in the council, that the ring survives (docs/ring.md)."""
    target: Share | None = None
    """Wanted probability that an event reaches everybody by gossip alone."""
    fanout: Positive | None = None
    termination: Positive | None = None
    max_events: Positive | None = None
    history: Positive | None = None
    buffer: Positive | None = None
    """Size of the recovery buffer B in frames."""
    abandon: Annotated[int, msgspec.Meta(ge=1, title="duration")] | None = None
    """Reliable members: how long to wait for an event that no known member has, before it is given up. Must be shorter
    than `settle` to have an effect in a run."""
    contract: Contract | None = None
    """A cluster without tickets (docs/probabilistic.md). Order `probabilistic` without a contract means an error rate
    of 0.001 for the workload. Its times are numbers, in seconds."""
    mechanism: str = ""
    """A cluster without tickets, ordered by a mechanism of the SURVEY (docs/survey.md): first, first-unstable,
    identifiers, vector, compact-multicast, compact-unicast, interval, physical, delta."""
    survey: SurveyConfig | None = None
    """Its settings; default by formula (`Requirements`)."""
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


class Network(msgspec.Struct, frozen=True, kw_only=True):
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


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """A whole simulation. `[[fault]]` and `[[publish]]` tables are its explicit actions."""

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
    network: Network = Network()
    clocks: Clocks = Clocks()
    cluster: tuple[Cluster, ...] = (Cluster(),)
    chaos: Chaos | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All processes."""
        return tuple(f"n{i}" for i in range(self.members)) if isinstance(self.members, int) else self.members

    def members_of(self, cluster: Cluster) -> tuple[str, ...]:
        return self.names if cluster.members is None else cluster.members

    def founder_of(self, cluster: Cluster) -> str:
        return cluster.founder or self.members_of(cluster)[0]

    def coordinators_of(self, cluster: Cluster) -> tuple[str, ...]:
        """The processes that want a ticket from the beginning."""
        usual = len(self.members_of(cluster)) if cluster.free else cluster.tickets
        wanted = usual if cluster.coordinators is None else cluster.coordinators
        return self.members_of(cluster)[:wanted] if isinstance(wanted, int) else wanted

    def liars_of(self, cluster: Cluster) -> tuple[str, ...]:
        """The members that lie."""
        members = self.members_of(cluster)
        return members[len(members) - cluster.liars :]

    def ring_time(self, cluster: Cluster) -> int:
        """When workloads start by default. A coordinator admits one newcomer at a time and waits about a round for its
        confirmation (docs/ring.md, rule 10), so a ring of m grows like a tree of depth log2 m."""
        if cluster.free:
            return self.round
        return self.round * (8 + 2 * max(1, len(self.coordinators_of(cluster))).bit_length())

    def orders(self, cluster: Cluster, seed: int) -> dict[str, str]:
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


SIZED: tuple[str, ...] = (
    *("mode", "view", "recovery", "once", "replacement", "target", "k", "ring", "ring_k", "fanout", "termination"),
    *("max_events", "history", "buffer", "mechanism", "survey"),
)
"""Settings of a cluster that go to `Requirements` under the same name."""


def settings_of(scenario: Scenario, cluster: Cluster, latency: int) -> dict[str, Any]:
    """The cluster's settings as arguments of `Requirements`."""
    w = cluster.workload
    coordinators = max(1, len(scenario.coordinators_of(cluster)))
    events = w.rate * coordinators or w.per_second * scenario.round / 1e9
    given = {
        "members": len(scenario.members_of(cluster)),
        "loss": scenario.network.loss,
        "rate": events / w.batch or 1.0,
        "round_ns": scenario.round,
        "latency_ns": latency,
        **{name: getattr(cluster, name) for name in SIZED},
        "contract": cluster.contract or _default_contract(scenario, cluster, latency),
    }
    return {name: value for name, value in given.items() if value is not None}


def config_of(scenario: Scenario, cluster: Cluster, order: str, latency: int) -> Config:
    """The settings of a member: the scenario's, and the rest by formula."""
    known = Requirements(**settings_of(scenario, cluster, latency))
    config = known.config(cluster.tickets, order, cluster.name)  # type: ignore[arg-type]  # refuses an unknown order
    if cluster.abandon is None:
        return config
    ordering = msgspec.structs.replace(config.ordering, abandon_ns=cluster.abandon, memory_ns=2 * cluster.abandon)
    return msgspec.structs.replace(config, ordering=ordering)


def _default_contract(scenario: Scenario, cluster: Cluster, latency: int) -> Contract | None:
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

    scenario: Scenario
    faults: tuple[Action, ...] = ()
    publishes: tuple[Publish, ...] = ()
    path: str = ""
    variant: str = ""
    """Distinguishes a changed scenario from its file, since one trace may contain runs of both."""

    @property
    def name(self) -> str:
        """The file's name without suffix, and the variant."""
        return (Path(self.path).stem or "scenario") + (f"-{self.variant}" if self.variant else "")


def load(path: Path, data: Path | None = None) -> Loaded:
    """Read a scenario file. `data` overrides the path of the recorded latencies."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read scenario {path}: {reason}") from None
    loaded = parse(text, str(path))
    if data is not None:
        network = msgspec.structs.replace(loaded.scenario.network, file=str(data))
        loaded = msgspec.structs.replace(loaded, scenario=msgspec.structs.replace(loaded.scenario, network=network))
    return loaded


def parse(text: str, path: str = "") -> Loaded:
    """Read scenario text; every error names the file and the key."""
    try:
        table = tomllib.loads(text)
        return _loaded(table, path)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path or 'scenario'}: not TOML: {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{path or 'scenario'}: {error}") from None


def _loaded(table: dict[str, object], path: str) -> Loaded:
    round_ns = parse_duration(table.get("round", "100ms"), "round")
    if round_ns < 1:
        raise ConfigError("round: must be longer than 0")
    faults = _actions(table.pop("fault", []), "fault", round_ns)
    publishes = [a for a in _actions(table.pop("publish", []), "publish", round_ns) if isinstance(a, Publish)]
    if isinstance(table.get("cluster"), dict):
        table["cluster"] = [table["cluster"]]
    try:
        scenario = read(Scenario, table, round_ns=round_ns)
    except ConfigError as error:
        if str(error).startswith("unknown key") and "." not in str(error).split(";")[0]:
            raise ConfigError(f"{error}, fault, publish") from None
        raise
    check(scenario, (*faults, *publishes))
    return Loaded(scenario=scenario, faults=tuple(faults), publishes=tuple(publishes), path=path)


def _actions(tables: object, where: str, round_ns: int) -> list[Action]:
    if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        raise ConfigError(f"{where}: write it as [[{where}]] tables")
    kind = {"kind": "publish"} if where == "publish" else {}
    return [read_action({**kind, **t}, f"{where}[{i}]", round_ns) for i, t in enumerate(tables)]


def check(scenario: Scenario, actions: tuple[Action, ...]) -> None:
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
    for action in actions:
        where = f"{type(action).__struct_config__.tag} at {action.at} ns"
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
        raise ConfigError("network.file: recorded latencies need a CSV file (here, or --data on the command line)")


def _check_cluster(scenario: Scenario, cluster: Cluster, want: object) -> None:
    assert callable(want)
    where = f"cluster {cluster.name}"
    for name in (*(cluster.members or ()), *cluster.order_of):
        want(name, where)
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
    table["fault"] = [write_action(a) for a in loaded.faults]
    publishes = [write_action(a) for a in loaded.publishes]
    for publish in publishes:
        del publish["kind"]
    table["publish"] = publishes
    return to_toml({k: v for k, v in table.items() if v != []})
