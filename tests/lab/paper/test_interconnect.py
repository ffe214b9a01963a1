"""Subgroups joined by servers: causal across all of them, nothing lost or doubled when servers crash."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.survey.net import mechanisms
from whence.core.order.survey.base import Mechanism
from whence.core.order.survey.vector import VectorClock
from whence.errors import ConfigError, CyclicTopology
from whence.lab.paper.survey.interconnect import Interconnected, ToGroup, check_acyclic
from whence.lab.paper.survey.reliable import View
from whence.lab.paper.survey.subgroup import Delivered, Installed, ToMember

Place = tuple[int, int]
Name = tuple[int, int, str]
CHAIN = [(0, 1), (1, 2), (2, 3)]
STAR = [(0, 1), (0, 2), (0, 3)]


class Federation:
    """Subgroups 0..3 of three members each. Links between members reorder and duplicate; so do those between
    subgroups."""

    def __init__(
        self,
        links: Sequence[Place],
        rng: Random,
        servers: int = 1,
        uniform: bool = True,
        kind: type[Interconnected] = Interconnected,
        check: bool = True,
        spread: bool = False,
    ) -> None:
        size = 3
        if check:
            check_acyclic(links)
        self.rng = rng
        makes = [m for _, m in sorted(mechanisms(size).items()) if _ not in ("physical", "delta")]
        self.sites: dict[Place, Interconnected] = {}
        self.views: dict[int, View] = {}
        self.under_way: list[tuple[Place, Place, object]] = []
        self.past: dict[Name, frozenset[Name]] = {}
        self.known: dict[Place, set[Name]] = {}
        self.here: dict[Place, list[Name]] = {}
        self.inversions: list[tuple[Place, Name, list[Name]]] = []
        for group in range(4):
            near = [b if a == group else a for a, b in links if group in (a, b)]
            view = self.views[group] = View(1, tuple(range(size)))
            for p in range(size):
                make: Callable[[int], Mechanism] = makes[group % len(makes)]  # a different order in each
                site = kind(group, p, make(p), view, near, servers, uniform, report_every=5, spread=spread)
                self.sites[group, p] = site
                self.known[group, p], self.here[group, p] = set(), []
        for place, site in list(self.sites.items()):
            self.do(place, site.start(0))

    def do(self, place: Place, outputs: list[object]) -> None:
        for output in outputs:
            match output:
                case ToMember(to, wire):
                    self.under_way.append((place, (place[0], to), wire))
                case ToGroup(group, to, wire):
                    members = [p for p in self.sites if p[0] == group and (to is None or p[1] == to)]
                    self.under_way += [(place, p, wire) for p in members]
                case Delivered(group, process, _, body):
                    self.deliver(place, (group, process, body.decode()))
                case Installed():
                    pass

    def multicast(self, place: Place, everywhere: bool = True) -> Name:
        body = f"{'g' if everywhere else 'l'}{len(self.past)}"
        name = (*place, body)
        self.past[name] = frozenset(self.known[place])
        self.known[place].add(name)
        self.do(place, self.sites[place].multicast(body.encode(), 0, everywhere))
        return name

    def deliver(self, place: Place, name: Name) -> None:
        assert name not in self.here[place], f"{place} delivers {name} twice"
        due = {n for n in self.past[name] if n[2][0] == "g" or n[0] == place[0]}
        if early := due - set(self.here[place]):
            self.inversions.append((place, name, sorted(early)))
        self.here[place].append(name)
        self.known[place] |= self.past[name] | {name}

    def step(self) -> None:
        at = self.rng.randrange(len(self.under_way))
        sender, to, wire = self.under_way[at]
        if self.rng.random() >= 0.05 or isinstance(wire, View):
            self.under_way.pop(at)
        if to not in self.sites:
            return
        site = self.sites[to]
        if isinstance(wire, View):
            if wire.number > (site.local.change.view.number if site.local.change else site.view.number):
                self.do(to, site.install_view(wire, 0))
        elif sender[0] == to[0]:
            self.do(to, site.receive(sender[1], wire, 0))  # type: ignore[arg-type]
        else:
            self.do(to, site.receive_link(wire, 0))  # type: ignore[arg-type]

    def crash(self, place: Place) -> None:
        del self.sites[place]
        self.under_way = [x for x in self.under_way if x[0] != place or self.rng.random() < 0.5]
        group = place[0]
        old = self.views[group]
        view = self.views[group] = View(old.number + 1, tuple(m for m in old.members if m != place[1]))
        self.under_way += [((-1, -1), (group, p), view) for p in view.members]

    def settle(self) -> None:
        while self.under_way:
            self.step()

    def check(self) -> None:
        """P1-P4 across all subgroups, among those alive at the end."""
        assert self.inversions == []
        everybody = sorted(self.sites)
        reached = {n for p in everybody for n in self.here[p] if n[2][0] == "g"}
        for place in everybody:
            mine = set(self.here[place])
            assert {n for n in mine if n[2][0] == "g"} == reached  # P2, everywhere
            assert {n for n in self.past if n[:2] == place} <= mine  # P1
            assert not [n for n in mine if n[2][0] == "l" and n[0] != place[0]]  # local stays local
        for group in range(4):
            local = [frozenset(n for n in self.here[p] if n[2][0] == "l") for p in everybody if p[0] == group]
            assert len(set(local)) == 1


def run(links: Sequence[Place], seed: int, crashes: Sequence[int] = (), **settings: Any) -> Federation:
    rng = Random(seed)
    net = Federation(links, rng, **settings)
    for at in range(250):
        if at in crashes:  # the primary of some subgroup that has others left
            group = rng.choice([g for g in range(4) if len(net.views[g].members) > 1])
            net.crash((group, net.views[group].members[0]))
        if rng.random() < 0.12 or not net.under_way:
            net.multicast(rng.choice(sorted(net.sites)), everywhere=rng.random() < 0.7)
        else:
            net.step()
    net.settle()
    return net


@pytest.mark.parametrize("links", [CHAIN, STAR], ids=["chain", "star"])
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_causal_across_subgroups_with_orders_of_their_own(links: Sequence[Place], seed: int) -> None:
    run(links, seed).check()


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("servers", [1, 2, 3])
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32))
def test_crashed_servers_are_replaced_and_nothing_is_lost_or_doubled(servers: int, spread: bool, seed: int) -> None:
    net = run(CHAIN, seed, crashes=(80, 120, 200), servers=servers, spread=spread)
    net.check()
    assert len(net.sites) == 9


def test_several_servers_share_the_links_and_keep_one_order() -> None:
    net = run(CHAIN, 1, servers=3)
    net.check()
    busy = [site for place, site in net.sites.items() if place[0] == 1 and site.stats.remulticast]
    assert len(busy) == 3


def test_a_server_that_crashes_without_uniform_delivery_loses() -> None:
    wrong = 0
    for seed in range(40):
        net = run(CHAIN, seed, crashes=(60, 100, 140, 180), uniform=False)
        try:
            net.check()
        except AssertionError:
            wrong += 1
    assert wrong > 0


class OutOfOrder(Interconnected):
    """Multicasts at home in the order of arrival, whatever the numbers say."""

    def _push(self, neighbour: int, now: int) -> list[object]:
        link = self.links[neighbour]
        if link.held:
            link.here = max(min(link.held) - 1, 0)
            link.pushed = 0
        return super()._push(neighbour, now)


class NotCausal(Interconnected):
    """Several servers multicast what they get as soon as they have it: each in order, but not one after the other."""

    def _push(self, neighbour: int, now: int) -> list[object]:
        link = self.links[neighbour]
        if link.held:
            link.here = max(link.here, min(link.held) - 1)
        return super()._push(neighbour, now)


def test_links_that_are_not_fifo_are_seen() -> None:
    assert any(run(CHAIN, seed, kind=OutOfOrder).inversions for seed in range(20))
    assert any(run(CHAIN, seed, kind=NotCausal, servers=3).inversions for seed in range(20))


def test_logs_are_cut_where_neighbours_have_all() -> None:
    net = run(CHAIN, 3)
    sent = len([n for n in net.past if n[2][0] == "g"])
    assert max(len(site.log) for site in net.sites.values()) < sent
    small = Interconnected(0, 0, VectorClock(0), View(1, (0,)), [1], max_log=2)
    small.start(0)
    for _ in range(3):
        small.multicast(b"", 0)
    assert len(small.log) == 2 and small.stats.log_dropped == 1


@pytest.mark.parametrize("links,circle", [([(0, 1), (1, 2), (2, 0)], "2 - 1 - 0 - 2"), ([(0, 1), (1, 0)], "1 - 0 - 1")])
def test_a_circle_is_refused_with_a_reason(links: Sequence[Place], circle: str) -> None:
    with pytest.raises(CyclicTopology, match=circle) as caught:
        check_acyclic(links)
    assert "twice" in str(caught.value) and isinstance(caught.value, ConfigError)
    with pytest.raises(CyclicTopology, match="itself"):
        check_acyclic([(1, 1)])
    check_acyclic(CHAIN)
    check_acyclic(STAR)


def test_why_circles_are_refused() -> None:
    """0 - 1 - 2 - 0: each message comes to every subgroup on two ways, and is multicast there twice. (Only because all
    copies have one name is it not delivered twice, and does it not go round for ever.)"""
    net = run([(0, 1), (1, 2), (2, 0), (2, 3)], 0, check=False)
    assert sum(site.stats.duplicates for site in net.sites.values()) > 0
    assert not sum(site.stats.duplicates for site in run(CHAIN, 0).sites.values())
