"""The rules of a bridge, the survey's interconnection server of clusters (SURVEY 3.4). Pure.

1. The bridge is an ordinary member of each cluster, in an order that is causal. It publishes each global event that it
   delivers in one cluster in all others but those it has been in, in the order in which it delivers them, by one
   member. No causal history crosses: what precedes an event was published there before it, by the same publisher.
2. An event keeps its name however many clusters it crosses. What a bridge counts by is the event's id in the cluster
   where it took it: events of one tenure of a ticket come in the order of their numbers, so one number per tenure says
   which have been published on the other side (`have`).
3. `have` is learned from the own events only, when they are delivered on the other side. They are in the journal before
   anybody else hears of them, and are learned before they are done with. So after `kill -9` it is known exactly what
   was published, whatever else was lost: nothing is lost and nothing doubled.
4. A bridge may have several servers: members of both clusters, in one order that all know. The first of them that is in
   the view of both clusters forwards. The others remember what they would forward, until they read its copy on the
   other side; when all before them are gone, they forward that and go on. Two servers may take each other for dead and
   both forward: each copy comes after what it follows, and a `Reader` drops the second. So that this is so, a server
   publishes nothing before its member has delivered the originals of all copies that it has read (`learned_of`).
5. More than one path between two clusters is refused, as the SURVEY demands. No bridge knows the topology: at its start
   it sends a `Probe` through all bridges there are, and publishes nothing until it can have come round. If it comes on
   a way that is not the bridge's own there is a circle, and the bridge that has started last gives way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

import msgspec

from whence.audit.trace.merge import Crossing
from whence.core.clock import EventId, FreeId, MemberId, address_of
from whence.errors import BadMessage, CorruptJournal, CyclicTopology, UsageError
from whence.live.bridge.envelope import (
    MAX_PATH,
    Crossed,
    Everywhere,
    FromClient,
    Heading,
    Local,
    Probe,
    believed,
    hop_of,
    name_of,
    unwrap,
    wrap,
)

Numbering = tuple[str, int, int, MemberId]
"""Cluster, ticket, incarnation, owner: whose events have rising numbers. Without tickets the owner alone says it."""

MAX_TENURES = 4096
"""Per cluster, how many are remembered; the one not heard of longest is forgotten. Needed are those of which an event
may be read again after a crash: of the last second or so."""
MAX_PENDING = 65_536
"""Events that a server which does not forward remembers; of more it forgets the oldest, and counts them."""
MAX_LIVES = 64
"""Own member ids of earlier lives that are remembered per cluster."""


class Forward(msgspec.Struct, frozen=True, gc=False):
    """Publish this in that cluster."""

    to: str
    payload: bytes


GatewayOutput = Forward | Crossing


@dataclass
class GatewayStats:
    """Counters: nothing is dropped without a number rising."""

    local: int = 0
    """Events that stay where they are."""
    forwarded: int = 0
    again: int = 0
    """Not forwarded after a restart: they were on the other side already."""
    returned: int = 0
    """Not forwarded to where they have been."""
    too_far: int = 0
    """Not forwarded: they have been in as many clusters as a heading names."""
    too_large: int = 0
    """Not forwarded: with the heading they are larger than an event may be."""
    malformed: int = 0
    """Not forwarded: a heading that is none."""
    forged: int = 0
    """Not forwarded: a heading of a bridge or a door that another member wrote."""
    probes: int = 0
    taken_over: int = 0
    """Forwarded in the place of a server that is gone."""
    forgotten: int = 0
    """Not remembered while another server forwards: there were too many."""

    @property
    def refused(self) -> int:
        """Those that should have been forwarded."""
        return self.too_far + self.too_large + self.malformed

    def asdict(self) -> dict[str, int]:
        return {f"bridge.{name}": n for name, n in asdict(self).items()}


class BridgeLedger(msgspec.Struct, frozen=True, array_like=True):
    """What a bridge keeps on disk."""

    clusters: tuple[str, ...]
    lives: tuple[tuple[str, tuple[str, ...]], ...]
    have: tuple[tuple[str, tuple[tuple[str, int, int, str, int], ...]], ...]


_ledger = msgspec.msgpack.Decoder(BridgeLedger)


class Gateway:
    """One bridge between two or more clusters."""

    def __init__(
        self,
        clusters: Sequence[str],
        bridge: str,
        *,
        unmarked: str = "local",
        max_payload: int = 1 << 20,
        trusted: Mapping[str, Collection[str]] | None = None,
        servers: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """`bridge`: this start of it, greater than those before. `unmarked`: the scope of events without a heading;
        `global` where the publishers know nothing of bridges. `max_payload`: bytes of an event. `trusted`: by cluster,
        the addresses of its bridges and doors, whose headings count; without it those of all publishers do. `servers`:
        by cluster, the addresses of this bridge's servers, in the order in which they take over."""
        if len(clusters) < 2:
            raise UsageError("a bridge joins at least two clusters")
        if unmarked not in ("local", "global"):
            raise UsageError(f"the scope of unmarked events is local or global, not {unmarked!r}")
        if len(set(clusters)) < len(clusters):
            raise CyclicTopology(f"{', '.join(clusters)}: a bridge names each cluster once")
        self.servers = {c: tuple((servers or {}).get(c, ())) for c in clusters}
        if servers and (len(clusters) > 2 or len({len(some) for some in self.servers.values()}) > 1):
            raise UsageError("several servers: a bridge of two clusters, and as many addresses in one as in the other")
        self.clusters = tuple(clusters)
        self.bridge = bridge
        self.unmarked = unmarked
        self.max_payload = max_payload
        self.trusted = trusted or {}
        self.starting = True
        """Nothing is forwarded but probes: the own one may still come round."""
        self.active = not servers
        """It forwards, and does not only remember."""
        self.pending: dict[tuple[Numbering, int], Forward] = {}
        self.learned_of: dict[str, dict[Numbering, str]] = {c: {} for c in clusters}
        """By cluster: events of it whose copies by other servers were read on the other side, the last of each tenure,
        until this member has delivered them, too."""
        self.lives: dict[str, dict[MemberId, None]] = {c: {} for c in clusters}
        self.have: dict[str, dict[Numbering, int]] = {c: {} for c in clusters}
        """By cluster: which events of others it has got from this bridge."""
        self.learned = False
        """`have` or `lives` has changed since `ledger` was called."""
        self.stats = {c: GatewayStats() for c in clusters}
        """By the cluster that an event is read in."""

    # --- inputs

    def is_member(self, cluster: str, me: MemberId) -> None:
        """The bridge is this member of the cluster from now on."""
        lives = self.lives[cluster]
        lives[me] = None
        while len(lives) > MAX_LIVES:
            del lives[next(iter(lives))]
        self.learned = True

    def probes(self) -> list[Forward]:
        """To begin with: one of two clusters is enough, a circle can be walked both ways."""
        return [Forward(c, wrap(Probe(self.bridge, (), self.bridge), b"")) for c in self.clusters[:-1]]

    def look(self, cluster: str, payload: bytes, owner: MemberId) -> list[Forward]:
        """At the start: an event of others that is not read yet. Only probes count."""
        try:
            heading, _ = unwrap(payload)
        except BadMessage:
            return []
        if address_of(owner) in self.servers[cluster]:
            return []
        if not isinstance(heading, Probe) or not believed(heading, owner, self.trusted.get(cluster)):
            return []
        return list(self._probe(cluster, heading))

    def read(self, cluster: str, event: EventId | FreeId, payload: bytes) -> list[GatewayOutput]:
        """The next event of a cluster, in its order. `CyclicTopology` if it is the own probe on a way of its own."""
        try:
            heading, body = unwrap(payload)
        except BadMessage:
            self.stats[cluster].malformed += 1
            return []
        if event.owner in self.lives[cluster]:
            return self._learn(cluster, event, heading)
        if address_of(event.owner) in self.servers[cluster]:
            return self._learn(cluster, event, heading, True)
        if not believed(heading, event.owner, self.trusted.get(cluster)):
            self.stats[cluster].forged += 1
            return []
        if isinstance(heading, Probe):
            return list(self._probe(cluster, heading))
        crossed = self._crossed(cluster, event, heading)
        if crossed is None:
            self.stats[cluster].local += 1
            return []
        ticket, inc, seq, owner = hop_of(event)
        forwards = list(self._forwards(crossed, (cluster, ticket, inc, owner), seq, body))
        if self.active:
            return [*forwards]
        for forward in forwards:  # a bridge with servers has two clusters: there is one
            self.pending[(cluster, ticket, inc, owner), seq] = forward
        while len(self.pending) > MAX_PENDING:
            del self.pending[next(iter(self.pending))]
            self.stats[cluster].forgotten += 1
        return []

    def forwards(self, active: bool) -> list[Forward]:
        """Whether this server is the one that forwards, from now on: what it has to forward for one that is gone."""
        self.active = active
        if not active:
            return []
        pending, self.pending = self.pending, {}
        todo = [(at, f) for at, f in pending.items() if at[1] > self.have[f.to].get(at[0], 0)]
        for (tenure, _), _ in todo:
            self.stats[tenure[0]].taken_over += 1
        return [forward for _, forward in todo]

    # --- out

    def _crossed(self, cluster: str, event: EventId | FreeId, heading: Heading | None) -> Crossed | None:
        """The heading on the other side; None: it stays here."""
        shared = bool(self.servers[cluster])
        match heading:
            case Crossed(path=path):
                shared |= heading.shared
                return msgspec.structs.replace(heading, path=(*path, cluster), hop=hop_of(event), shared=shared)
            case FromClient(client, number, everywhere) if everywhere or self.unmarked == "global":
                return Crossed(str(event), (cluster,), hop_of(event), client, number, shared)
            case Everywhere():
                return Crossed(str(event), (cluster,), hop_of(event), shared=shared)
            case None | Local() if self.unmarked == "global":
                return Crossed(str(event), (cluster,), hop_of(event), shared=shared)
        return None

    def _forwards(self, crossed: Crossed, tenure: Numbering, seq: int, body: bytes) -> Iterable[Forward]:
        payload, stats = _wrapped(crossed, body), self.stats[tenure[0]]
        for to in self.clusters:
            if to == tenure[0]:
                continue
            if to in crossed.path:
                stats.returned += 1
            elif seq <= self.have[to].get(tenure, 0):
                stats.again += 1
            elif payload is None:
                stats.too_far += 1
            elif len(payload) > self.max_payload:
                stats.too_large += 1
            else:
                stats.forwarded += 1
                yield Forward(to, payload)

    def _probe(self, cluster: str, probe: Probe) -> Iterable[Forward]:
        if probe.bridge == self.bridge:
            if probe.newest == self.bridge:
                way = (*probe.path, cluster)
                raise CyclicTopology(
                    f"this bridge would close a circle: {' - '.join((*way, way[0]))}. Events would come on two ways "
                    "and be published twice: drop one of these links"
                )
            return  # another bridge on this circle started later, and gives way
        self.stats[cluster].probes += 1
        path = (*probe.path, cluster)
        newest = max(probe.newest, self.bridge) if self.starting else probe.newest
        payload = _wrapped(Probe(probe.bridge, path, newest), b"")
        for to in self.clusters:
            if to not in path and payload is not None:
                yield Forward(to, payload)

    # --- what is on the other side

    def _learn(
        self, cluster: str, event: EventId | FreeId, heading: Heading | None, fellow: bool = False
    ) -> list[GatewayOutput]:
        """An own event, or one of a `fellow` server, is delivered: it is what this bridge has brought there."""
        if not isinstance(heading, Crossed) or (source := heading.path[-1]) not in self.clusters:
            return []
        ticket, inc, seq, owner = heading.hop
        have, tenure = self.have[cluster], (source, ticket, inc, owner)
        have[tenure] = max(seq, have.pop(tenure, 0))  # put at the end: it was heard of last
        if len(have) > MAX_TENURES:
            del have[next(iter(have))]
        self.learned = True
        self.pending.pop((tenure, seq), None)
        if fellow:
            self.learned_of[source][tenure] = name_of(heading.hop)
        return [Crossing(source, name_of(heading.hop), cluster, str(event))]

    def ledger(self) -> bytes:
        """What has to be on disk before the events read so far are done with."""
        self.learned = False
        lives = tuple((c, tuple(some)) for c, some in self.lives.items())
        have = tuple((c, tuple((*tenure, n) for tenure, n in some.items())) for c, some in self.have.items())
        return msgspec.msgpack.encode(BridgeLedger(self.clusters, lives, have))

    def restore(self, data: bytes) -> None:
        """Go on from the ledger of the last life. `CorruptJournal` for anything else."""
        try:
            ledger = _ledger.decode(data)
        except msgspec.MsgspecError as error:
            raise CorruptJournal(f"the bridge's ledger is damaged: {error}") from None
        if sorted(ledger.clusters) != sorted(self.clusters):
            raise UsageError(f"the directory is of a bridge between {', '.join(ledger.clusters)}")
        self.lives |= {c: dict.fromkeys(some) for c, some in ledger.lives}
        self.have |= {c: {(s, t, i, o): n for s, t, i, o, n in some} for c, some in ledger.have}


def _wrapped(heading: Crossed | Probe, body: bytes) -> bytes | None:
    """None: it has come so far that no heading names all of its way. Whoever wrote the heading, it ends here."""
    if len(heading.path) > MAX_PATH:
        return None
    try:
        return wrap(heading, body)
    except UsageError:
        return None
