"""The daisy: servers of subgroups in a causal multicast of their own, replaced when they crash."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.survey.net import mechanisms
from whence.errors import UsageError
from whence.order.survey import Identifiers, VectorClock
from whence.order.survey.daisy import Daisy, Serves, ToServer
from whence.order.survey.reliable import View
from whence.order.survey.subgroup import Delivered, Global, Installed, ToMember

Place = tuple[int, int]
Name = tuple[int, int, str]
GROUPS, SIZE = 4, 3


class Flower:
    """Four subgroups with four orders, a core with a fifth; all links reorder and duplicate."""

    def __init__(self, rng: Random, kind: type[Daisy] = Daisy) -> None:
        self.rng, self.kind = rng, kind
        names = ["first", "vector", "compact-multicast", "interval"]
        self.sites: dict[Place, Daisy] = {}
        self.views = {g: View(1, tuple(range(SIZE))) for g in range(GROUPS)}
        self.core_view = View(1, tuple(range(GROUPS)))
        self.servers: dict[int, Place] = {g: (g, 0) for g in range(GROUPS)}
        self.under_way: list[tuple[Place, Place, str, int, object]] = []
        self.past: dict[Name, frozenset[Name]] = {}
        self.known: dict[Place, set[Name]] = {}
        self.here: dict[Place, list[Name]] = {}
        self.inversions: list[tuple[Place, Name, list[Name]]] = []
        for g in range(GROUPS):
            for p in range(SIZE):
                make = mechanisms(SIZE)[names[g]]
                self.sites[g, p] = kind(g, p, make(p), self.views[g], range(GROUPS), report_every=5)
                self.known[g, p], self.here[g, p] = set(), []
        for number, place in self.servers.items():
            self.do(place, self.sites[place].join_core(number, Identifiers(number), self.core_view, 0))

    def do(self, place: Place, outputs: list[object]) -> None:
        for output in outputs:
            match output:
                case ToMember(to, wire):
                    self.under_way.append((place, (place[0], to), "home", place[1], wire))
                case ToServer(to, wire):
                    mine = self.sites[place].core
                    assert mine is not None
                    self.under_way.append((place, self.servers[to], "core", mine.me, wire))
                case Serves():
                    number = max(self.servers) + 1  # the core's membership service takes it in
                    self.servers[number] = place
                    self.sites[place].join_core(number, Identifiers(number), None, 0)
                    self.announce_core((*self.core_view.members, number))
                case Delivered(group, process, _, body):
                    self.deliver(place, (group, process, body.decode()))
                case Installed():
                    pass

    def announce_core(self, members: tuple[int, ...]) -> None:
        self.core_view = View(self.core_view.number + 1, members)
        for number in members:
            self.under_way.append(((-1, -1), self.servers[number], "core-view", 0, self.core_view))

    def multicast(self, place: Place, everywhere: bool) -> None:
        body = f"{'g' if everywhere else 'l'}{len(self.past)}"
        self.past[(*place, body)] = frozenset(self.known[place])
        self.known[place].add((*place, body))
        self.do(place, self.sites[place].multicast(body.encode(), 0, everywhere))

    def deliver(self, place: Place, name: Name) -> None:
        assert name not in self.here[place], f"{place} delivers {name} twice"
        due = {n for n in self.past[name] if n[2][0] == "g" or n[0] == place[0]}
        if early := due - set(self.here[place]):
            self.inversions.append((place, name, sorted(early)))
        self.here[place].append(name)
        self.known[place] |= self.past[name] | {name}

    def step(self) -> None:
        at = self.rng.randrange(len(self.under_way))
        _, to, kind, sender, wire = self.under_way[at]
        if self.rng.random() >= 0.05 or isinstance(wire, View):
            self.under_way.pop(at)
        if to not in self.sites:
            return
        site = self.sites[to]
        if isinstance(wire, View):
            local = site.local if kind == "home-view" else site.core
            assert local is not None
            newest = local.change.view.number if local.change else local.view.number if local.view else 0
            if wire.number > newest:
                self.do(to, (site.install_view if kind == "home-view" else site.install_core_view)(wire, 0))
        elif kind == "home":
            self.do(to, site.receive(sender, wire, 0))  # type: ignore[arg-type]
        else:
            self.do(to, site.receive_core(sender, wire, 0))  # type: ignore[arg-type]

    def crash(self, place: Place) -> None:
        del self.sites[place]
        self.under_way = [x for x in self.under_way if x[0] != place or self.rng.random() < 0.5]
        group = place[0]
        view = View(self.views[group].number + 1, tuple(m for m in self.views[group].members if m != place[1]))
        self.views[group] = view
        self.under_way += [((-1, -1), (group, p), "home-view", 0, view) for p in view.members]
        serving = [n for n in self.core_view.members if self.servers[n] == place]
        if serving:
            self.announce_core(tuple(n for n in self.core_view.members if n not in serving))

    def settle(self) -> None:
        while self.under_way:
            self.step()

    def check(self) -> None:
        assert self.inversions == []
        everybody = sorted(self.sites)
        reached = {n for p in everybody for n in self.here[p] if n[2][0] == "g"}
        for place in everybody:
            mine = set(self.here[place])
            assert {n for n in mine if n[2][0] == "g"} == reached
            assert {n for n in self.past if n[:2] == place} <= mine
            assert not [n for n in mine if n[2][0] == "l" and n[0] != place[0]]


def run(seed: int, crashes: tuple[int, ...] = (), kind: type[Daisy] = Daisy) -> Flower:
    rng = Random(seed)
    net = Flower(rng, kind)
    for at in range(250):
        if at in crashes:
            group = rng.choice([g for g in range(GROUPS) if len(net.views[g].members) > 1])
            net.crash((group, net.views[group].members[0]))
        if rng.random() < 0.12 or not net.under_way:
            net.multicast(rng.choice(sorted(net.sites)), everywhere=rng.random() < 0.7)
        else:
            net.step()
    net.settle()
    return net


@settings(max_examples=10)
@given(st.integers(0, 2**32))
def test_causal_through_the_core(seed: int) -> None:
    run(seed).check()


@settings(max_examples=15)
@given(st.integers(0, 2**32))
def test_crashed_servers_are_replaced_and_nothing_is_lost_or_doubled(seed: int) -> None:
    net = run(seed, crashes=(70, 120, 180))
    net.check()
    assert len(net.sites) == GROUPS * SIZE - 3


class NoCatchUp(Daisy):
    """A new server does not multicast at home what it missed."""

    def _catch_up(self, saved, now):  # type: ignore[no-untyped-def]
        super()._catch_up(type(saved)(saved.have, ()), now)
        return []


class OwnOrder(Daisy):
    """A server tells the core of its subgroup's messages late, in the order of their origins."""

    def _offer(self, messages: list[Global], now: int) -> list[object]:
        waiting = [m for m in self.log if m.group == self.group and m.number > self.in_core.get(m.origin, 0)]
        if len(waiting) < 3:
            return []
        return super()._offer(sorted(waiting, key=lambda m: (-m.process, m.number)), now)


def test_a_broken_rule_is_seen() -> None:
    def fails(kind: type[Daisy], seed: int) -> bool:
        try:
            run(seed, crashes=(70, 120, 180), kind=kind).check()
        except AssertionError:
            return True
        return False

    assert any(fails(NoCatchUp, seed) for seed in range(20))
    assert any(run(seed, kind=OwnOrder).inversions for seed in range(20))


def test_logs_are_cut_where_all_subgroups_have_it() -> None:
    net = run(5)
    sent = len([n for n in net.past if n[2][0] == "g"])
    assert all(len(site.core_log) < sent and len(site.log) < sent for site in net.sites.values())


def test_misuse_is_named() -> None:
    site = Daisy(0, 0, VectorClock(0), View(1, (0, 1)), [0, 1])
    with pytest.raises(UsageError, match="no server"):
        site.receive_core(1, None, 0)  # type: ignore[arg-type]
    site.join_core(0, VectorClock(0), View(1, (0, 1)), 0)
    with pytest.raises(UsageError, match="already"):
        site.join_core(0, VectorClock(0), None, 0)


@pytest.mark.parametrize("body", [b"", b"\x91", b"\x92\x03\x05", b"\x94\x01\x09\x01\x01"])
def test_a_server_that_multicasts_nonsense_stops_nobody(body: bytes) -> None:
    one, two = (Daisy(g, 0, VectorClock(0), View(1, (0,)), (0, 1)) for g in (0, 1))
    for number, server in enumerate((one, two)):
        server.join_core(number, Identifiers(number), View(1, (0, 1)), 0)
    assert one.core is not None

    def settle(outputs: list[object]) -> list[object]:
        """Between the two servers, until nothing is under way."""
        todo, seen = [(1, o) for o in outputs], list[object]()
        while todo:
            to, out = todo.pop(0)
            seen.append(out)
            if isinstance(out, ToServer):
                server = (one, two)[out.to]
                todo += [(1 - to, o) for o in server.receive_core(1 - out.to, out.wire, 0)]
        return seen

    settle(one._carry_out_core(one.core.multicast(body, 0), 0))
    assert one.stats.refused == two.stats.refused == 1
    said = settle(one.multicast(b"and on", 0))
    assert (0, 0, 1, b"and on") in [(d.group, d.process, d.number, d.body) for d in said if isinstance(d, Delivered)]
    assert two.have == {(0, 0): 1}
