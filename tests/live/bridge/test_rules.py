"""The rules of bridges, over generated schedules with crashes at every point, and headings from anybody."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.audit.trace.merge import Crossing
from whence.core.clock import EventId
from whence.errors import BadMessage, CorruptJournal, CyclicTopology, UsageError
from whence.live.bridge import envelope
from whence.live.bridge.envelope import MARK, Crossed, FromClient, Probe, Reader, Said, everywhere, local, unwrap, wrap
from whence.live.bridge.gateway import MAX_TENURES, Forward, Gateway

Log = list[tuple[EventId, bytes]]


class Cluster:
    """The deliveries of a cluster as its bridges see them: one sequence. Every publisher has a tenure of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: Log = []
        self.counts: dict[str, int] = {}

    def publish(self, owner: str, payload: bytes) -> EventId:
        self.counts[owner] = self.counts.get(owner, 0) + 1
        event = EventId(1, 1, self.counts[owner], owner)
        self.log.append((event, payload))
        return event

    def read(self) -> list[Said]:
        reader = Reader(self.name)
        return [said for event, payload in self.log if (said := reader.read(str(event), payload))]


class Process:
    """A bridge with a disk: a ledger and a cursor per cluster. A crash loses all else."""

    def __init__(self, name: str, clusters: list[Cluster]) -> None:
        self.name = name
        self.clusters = {c.name: c for c in clusters}
        self.ledger: bytes | None = None
        self.cursors = dict.fromkeys(self.clusters, 0)
        self.boots = 0
        self.start()

    def start(self) -> None:
        self.boots += 1
        self.gateway = Gateway(tuple(self.clusters), f"{self.name}{self.boots}")
        if self.ledger is not None:
            self.gateway.restore(self.ledger)
        for name in self.clusters:
            self.gateway.is_member(name, self.me)
        self.ledger = self.gateway.ledger()
        for name, cluster in self.clusters.items():
            for event, payload in cluster.log[self.cursors[name] :]:
                if event.owner in self.gateway.lives[name]:
                    self.gateway.read(name, event, payload)

    @property
    def me(self) -> str:
        return f"{self.name}#{self.boots}"

    def step(self, name: str, batch: int, crash: int | None = None) -> None:
        """Read a batch, publish, write the ledger, move the cursor; `crash`: after so many of these steps."""
        cluster, at = self.clusters[name], self.cursors[name]
        events = cluster.log[at : at + batch]
        out = [o for event, payload in events for o in self.gateway.read(name, event, payload)]
        todo = [*(o for o in out if isinstance(o, Forward)), "ledger", "cursor"]
        for done, what in enumerate(todo):
            if done == crash:
                self.start()
                return
            if isinstance(what, Forward):
                self.clusters[what.to].publish(self.me, what.payload)
            elif what == "ledger":
                self.ledger = self.gateway.ledger()
            else:
                self.cursors[name] = at + len(events)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("carry"), st.integers(0, 3), st.integers(1, 4), st.none() | st.integers(0, 6)),
    ),
    max_size=60,
)


@settings(max_examples=300)
@given(steps)
def test_every_global_event_is_everywhere_once_in_order_whatever_crashes(schedule: list[tuple[object, ...]]) -> None:
    """A - B - C, two bridges. Publishers follow what they have read, so that order across clusters can be judged."""
    A, B, C = clusters = [Cluster(name) for name in "ABC"]
    bridges = [Process("x", [A, B]), Process("y", [B, C])]
    born: dict[str, tuple[str, bool]] = {}
    past: dict[str, list[str]] = {}
    for n, step in enumerate(schedule):
        match step:
            case ("say", int(i), bool(wide)):
                cluster = clusters[i]
                before = [said.id for said in cluster.read() if said.scope == "global"]
                body = b"%d" % n
                event = str(cluster.publish(f"{cluster.name}{n}", everywhere(body) if wide else body))
                born[event] = (cluster.name, wide)
                past[event] = before
            case ("carry", int(i), int(batch), crash):
                bridge, name = [(bridges[0], "A"), (bridges[0], "B"), (bridges[1], "B"), (bridges[1], "C")][i]
                bridge.step(name, batch, crash)  # type: ignore[arg-type]
    for _ in range(4):
        for bridge in bridges:
            for name in bridge.clusters:
                bridge.step(name, 10_000)
    for cluster in clusters:
        read = cluster.read()
        ids = [said.id for said in read]
        due = [event for event, (home, wide) in born.items() if wide or home == cluster.name]
        assert sorted(ids) == sorted(due), "each once"
        for at, said in enumerate(read):
            assert said.cluster == born[said.id][0], "it keeps its origin"
            assert set(past[said.id]) <= set(ids[:at]), f"{said.id} came before what it follows"


def gateway(*clusters: str) -> Gateway:
    made = Gateway(clusters or ("A", "B"), "1")
    for name in made.clusters:
        made.is_member(name, f"me#{name}")
    return made


def test_what_was_brought_over_is_told_with_both_names() -> None:
    g = gateway()
    here = EventId(3, 1, 7, "a#1")
    [forward] = g.read("A", here, everywhere(b"hello"))
    assert isinstance(forward, Forward) and forward.to == "B"
    there = EventId(5, 2, 1, "me#B")
    assert g.read("B", there, forward.payload) == [Crossing("A", str(here), "B", str(there))]
    assert g.learned and g.read("A", here, everywhere(b"hello")) == [] and g.stats["A"].again == 1


def test_nobody_else_says_what_has_crossed() -> None:
    """A member that publishes a heading in the bridge's name keeps nothing from being brought over."""
    g = gateway()
    forged = wrap(Crossed("x", ("A",), (3, 1, 1 << 40, "a#1")), b"")
    assert g.read("B", EventId(1, 1, 1, "b#1"), forged) == []
    assert g.stats["B"].returned == 1
    assert len(g.read("A", EventId(3, 1, 7, "a#1"), everywhere(b"hello"))) == 1


def test_scopes() -> None:
    g, event = gateway(), EventId(0, 1, 1, "a#1")
    assert g.read("A", event, b"local") == g.read("A", event, wrap(FromClient("c", 1), b"local")) == []
    assert len(g.read("A", event, wrap(FromClient("c", 1, True), b"global"))) == 1
    wide = Gateway(("A", "B"), "1", unmarked="global")
    [out] = wide.read("A", event, b"no scope")
    assert isinstance(out, Forward) and unwrap(out.payload)[1] == b"no scope"
    with pytest.raises(UsageError, match="local or global"):
        Gateway(("A", "B"), "1", unmarked="all")


def test_what_cannot_cross_is_counted() -> None:
    small = Gateway(("A", "B"), "1", max_payload=200)
    event = EventId(0, 1, 1, "a#1")
    assert small.read("A", event, everywhere(b"x" * 150)) == [] and small.stats["A"].too_large == 1
    far = wrap(Crossed("e", tuple(f"c{n}" for n in range(16)), (0, 1, 1, "a#1")), b"")
    assert small.read("A", event, far) == [] and small.stats["A"].too_far == 1
    assert small.read("A", event, MARK + b"nonsense") == [] and small.stats["A"].malformed == 1
    long = wrap(Crossed("e" * 500, ("c" * 500,) * 6, (0, 1, 1, "a" * 480)), b"")
    named = Gateway(("A" * 600, "B"), "1")
    assert named.read("A" * 600, event, long) == [] and named.stats["A" * 600].too_far == 1, "no heading holds it"
    assert small.stats["A"].refused == 3


def probe_round(bridges: list[Gateway]) -> list[str]:
    """Those that start send probes, all forward them: who gives way."""
    gone: list[str] = []
    sent = [(b, f.to, f.payload) for b in bridges if b.starting for f in b.probes()]
    for sender, to, payload in sent:
        for bridge in bridges:
            if bridge is sender or to not in bridge.clusters or bridge.bridge in gone:
                continue
            try:
                sent += [(bridge, f.to, f.payload) for f in bridge.look(to, payload, sender.bridge + "#1")]
            except CyclicTopology as error:
                assert " - " in str(error)
                gone.append(bridge.bridge)
    return gone


@pytest.mark.parametrize("links, newest", [(["AB", "BC", "CA"], "3"), (["AB", "AB"], "2"), (["ABC", "CA"], "2")])
def test_of_a_circle_that_starts_together_one_gives_way(links: list[str], newest: str) -> None:
    bridges = [Gateway(tuple(link), str(n)) for n, link in enumerate(links, 1)]
    assert probe_round(bridges) == [newest]


def test_a_tree_is_no_circle() -> None:
    assert probe_round([Gateway(tuple(link), str(n)) for n, link in enumerate(["AB", "BC", "BD", "DEF"])]) == []


def test_who_was_there_stays() -> None:
    """The one that starts gives way, even if its name is the least."""
    bridges = [Gateway(tuple(link), name) for link, name in (("AB", "8"), ("BC", "9"), ("CA", "1"))]
    for bridge in bridges[:2]:
        bridge.starting = False
    assert probe_round(bridges) == ["1"]


def test_one_cluster_twice_is_a_circle() -> None:
    with pytest.raises(CyclicTopology):
        Gateway(("A", "A"), "1")
    with pytest.raises(CyclicTopology):
        Gateway(("A", "B", "B"), "1")
    with pytest.raises(UsageError, match="two"):
        Gateway(("A",), "1")


def test_the_ledger_is_of_these_clusters_and_bounded() -> None:
    g = gateway()
    for n in range(MAX_TENURES + 10):
        g.read("B", EventId(1, 1, n + 1, "me#B"), wrap(Crossed("e", ("A",), (0, n, 5, "a#1")), b""))
    assert len(g.have["B"]) == MAX_TENURES and ("A", 0, 0, "a#1") not in g.have["B"]
    again = gateway()
    again.restore(g.ledger())
    assert again.have == g.have and "me#A" in again.lives["A"]
    with pytest.raises(UsageError, match="between A, B"):
        gateway("A", "C").restore(g.ledger())
    for damaged in (b"", b"\x94\x02\x90\x90\x90", g.ledger()[:-3]):
        with pytest.raises(CorruptJournal):
            gateway().restore(damaged)


@given(st.binary(max_size=200))
def test_any_heading_is_one_or_a_named_error(data: bytes) -> None:
    for payload in (data, MARK + data, MARK + data + b"\x02body"):
        try:
            heading, body = unwrap(payload)
        except BadMessage:
            continue
        assert payload.endswith(body) and (heading is not None or body == payload)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=6),
    max_leaves=12,
)


@given(json_like, st.integers(0, 5))
def test_any_json_is_a_heading_or_a_named_error(value: object, tag: int) -> None:
    for said in (value, [tag, *value] if isinstance(value, list) else [tag, value]):
        payload = MARK + json.dumps(said).encode() + b"\x02body"
        with contextlib.suppress(BadMessage):
            unwrap(payload)
        g = gateway()
        g.read("A", EventId(0, 1, 1, "a#1"), payload)
        Reader("A").read("x", payload)


def test_readers_read_copies_once_and_hand_on_what_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "MAX_CLIENTS", 2)
    reader = Reader("A")
    first = wrap(FromClient("ann", 1), b"one")
    assert reader.read("a", first) == Said(b"one", "A", "a", (), "local", "ann", 1)
    assert reader.read("b", first) is None and reader.copies == 1
    joiner = Reader("A")
    joiner.restore(reader.state())
    assert joiner.read("c", first) is None
    assert joiner.read("d", wrap(FromClient("ann", 2), b"two")) is not None
    for other in ("bob", "cid"):
        reader.read("e", wrap(FromClient(other, 1), b""))
    assert reader.last == {("A", "bob"): 1, ("A", "cid"): 1}
    with pytest.raises(BadMessage):
        joiner.restore(b"\x91\x01")
    assert reader.read("f", wrap(Probe("b", (), "b"), b"")) is None
    assert reader.read("g", MARK) is None and reader.malformed == 1


def test_a_client_has_numbers_of_its_own_in_each_cluster() -> None:
    reader = Reader("B")
    assert reader.read("a", wrap(FromClient("ann", 1), b"")) is not None
    assert reader.read("b", wrap(Crossed("e", ("A",), (0, 1, 1, "a#1"), "ann", 1), b"")) is not None
    assert reader.read("c", wrap(Crossed("f", ("A",), (0, 1, 2, "a#1"), "ann", 1), b"")) is None


# Headings in the payloads of those who are neither bridge nor door


@given(st.binary(max_size=60))
def test_any_payload_can_be_a_local_event(data: bytes) -> None:
    for payload in (data, MARK + data, wrap(FromClient("ann", 9), data), everywhere(data)):
        said = Reader("a").read("1:1.0.1:1@p:1#1", local(payload))
        assert said is not None and (said.payload, said.scope, said.client) == (payload, "local", "")
    gateway = Gateway(("a", "b"), "b1")
    gateway.starting = False
    assert gateway.read("a", EventId(1, 1, 1, "p:1#1"), local(everywhere(data))) == []


def test_headings_of_bridges_and_doors_count_only_from_those_who_are_known() -> None:
    reader = Reader("a", trusted=["door:1", "bridge:1"])
    for forged in (FromClient("ann", 9), Crossed("1:1.0.1:1@x:1#1", ("hall",), (1, 1, 1, "x:1#1"), "ann", 9)):
        assert reader.read("1:1.0.1:1@eve:1#1", wrap(forged, b"forged")) is None
    assert reader.forged == 2
    for number in (1, 2, 3):
        said = reader.read(f"0:1.0.1:{number}@door:1#7", wrap(FromClient("ann", number), b"hello"))
        assert said is not None and said.number == number, "the forged number 9 has not made them copies"
    assert reader.read("1:1.0.1:2@eve:1#1", everywhere(b"all")) is not None, "everybody may publish for all"


def test_a_forged_probe_does_not_end_a_bridge_that_knows_the_others() -> None:
    gateway = Gateway(("a", "b"), "b1", trusted={"a": ["other:1"]})
    probe = wrap(Probe("b1", ("b",), "b1"), b"")
    assert gateway.look("a", probe, "eve:1#1") == []
    assert gateway.read("a", EventId(1, 1, 1, "eve:1#1"), probe) == [] and gateway.stats["a"].forged == 1
    with pytest.raises(CyclicTopology):
        gateway.look("a", probe, "other:1#1")


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 1), st.booleans()), max_size=60))
def test_two_servers_lose_nothing_whoever_forwards_when(schedule: list[tuple[int, int, bool]]) -> None:
    """Whatever they think of each other, as long as one forwards in the end: each event is read once, in order."""
    clusters = [Cluster(name) for name in "AB"]
    servers = {c.name: ("x", "y") for c in clusters}
    pair = [Gateway("AB", f"{n}", servers=servers) for n in (0, 1)]
    cursors = {(n, c.name): 0 for n in (0, 1) for c in clusters}
    for n, gateway in enumerate(pair):
        for name in "AB":
            gateway.is_member(name, f"{'xy'[n]}#1")

    def forward(n: int, out: list[object]) -> None:
        for o in out:
            if isinstance(o, Forward):
                next(c for c in clusters if c.name == o.to).publish(f"{'xy'[n]}#1", o.payload)

    def carry(n: int, cluster: Cluster) -> None:
        at = cursors[n, cluster.name]
        cursors[n, cluster.name] = len(cluster.log)
        forward(n, [o for event, payload in cluster.log[at:] for o in pair[n].read(cluster.name, event, payload)])

    for what, n, flag in schedule:
        if what == 0:
            clusters[n].publish(f"p{flag}#1", everywhere(b"%d" % len(clusters[n].log)))
        elif what == 1:
            forward(n, [*pair[n].forwards(flag)])
        else:
            carry(n, clusters[flag])
    for n in (0, 1):
        forward(n, [*pair[n].forwards(n == 0)])
    for _ in range(3):
        for n in (0, 1):
            for cluster in clusters:
                carry(n, cluster)
    born = [str(e) for c in clusters for e, _ in c.log if e.owner.startswith("p")]
    for cluster in clusters:
        ids = [said.id for said in cluster.read()]
        assert sorted(ids) == sorted(born), "each once"
        for owner in ("p0#1", "p1#1"):
            for home in "AB":
                mine = [s for s in cluster.read() if s.origin == owner and s.cluster == home]
                assert [EventId.parse(s.id).seq for s in mine] == sorted(EventId.parse(s.id).seq for s in mine)
