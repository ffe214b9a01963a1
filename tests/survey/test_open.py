"""Open groups: clients publish through members that crash, exactly once and in order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whence.errors import UsageError
from whence.order.survey import VectorClock
from whence.order.survey.open import Accepted, Client, Delivered, OpenMember, Refused, Request, ToClient, ToMember
from whence.order.survey.reliable import View

PATIENCE = 30


class Town:
    """Four members, three clients; a step is a moment. Messages of a crashing member arrive in part."""

    def __init__(self, rng: Random, uniform: bool = True, kind: type[OpenMember] = OpenMember) -> None:
        self.rng, self.now = rng, 0
        self.view = View(1, (0, 1, 2, 3))
        self.members = {p: kind(p, VectorClock(p), self.view, uniform) for p in self.view.members}
        self.clients = {c: Client(c, [(c + i) % 4 for i in range(4)], PATIENCE) for c in (100, 101, 102)}
        self.under_way: list[tuple[int, int, object]] = []
        self.log: dict[int, list[tuple[int, int]]] = {p: [] for p in self.members}
        self.accepted: dict[int, int] = dict.fromkeys(self.clients, 0)
        self.asked: dict[int, int] = dict.fromkeys(self.clients, 0)

    def do(self, who: int, outputs: list[object]) -> None:
        for output in outputs:
            match output:
                case ToMember(to, wire) | ToClient(to, wire):
                    self.under_way.append((who, to, wire))
                case Delivered(publisher, number, _):
                    self.log[who].append((publisher, number))

    def step(self) -> None:
        self.now += 1
        for c, client in self.clients.items():
            self.do(c, list(client.wake(self.now)))
        if not self.under_way:
            return
        at = self.rng.randrange(len(self.under_way))
        sender, to, wire = self.under_way[at]
        if self.rng.random() >= 0.05 or isinstance(wire, View):
            self.under_way.pop(at)
        if to in self.clients:
            if isinstance(wire, Accepted):
                self.accepted[to] = max(self.accepted[to], wire.number)
            self.do(to, list(self.clients[to].receive(wire, self.now)))  # type: ignore[arg-type]
        elif to in self.members:
            member = self.members[to]
            if isinstance(wire, View):
                newest = member.local.change.view if member.local.change else member.local.view
                if newest is None or wire.number > newest.number:
                    self.do(to, member.install_view(wire, self.now))
            elif isinstance(wire, Request):
                self.do(to, member.request(wire, self.now))
            else:
                self.do(to, member.receive(sender, wire, self.now))  # type: ignore[arg-type]

    def publish(self, c: int) -> None:
        self.asked[c] += 1
        self.do(c, list(self.clients[c].publish(b"", self.now)))

    def crash(self, p: int) -> None:
        del self.members[p]
        self.under_way = [x for x in self.under_way if x[0] != p or self.rng.random() < 0.4]
        self.view = View(self.view.number + 1, tuple(m for m in self.view.members if m != p))
        self.under_way += [(-1, m, self.view) for m in self.view.members]

    def settle(self) -> None:
        for _ in range(20_000):
            if not self.under_way and all(c.wake_at is None for c in self.clients.values()):
                return
            self.step()
        raise AssertionError("clients still wait")


def run(seed: int, uniform: bool = True, kind: type[OpenMember] = OpenMember) -> Town:
    rng = Random(seed)
    town = Town(rng, uniform, kind)
    crashes = rng.sample(range(20, 300), 3)
    for at in range(300):
        if at in crashes:
            town.crash(rng.choice(sorted(town.members)))
        if rng.random() < 0.1:
            town.publish(rng.choice(sorted(town.clients)))
        if rng.random() < 0.03:
            p = rng.choice(sorted(town.members))
            town.do(p, town.members[p].multicast(b"", town.now))
        town.step()
    town.settle()
    return town


def exactly_once(town: Town) -> bool:
    """Every survivor has every message of every client once, in the client's order."""
    return all(
        [n for c, n in town.log[p] if c == client] == list(range(1, town.asked[client] + 1))
        for p in town.members
        for client in town.clients
    )


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_exactly_once_and_in_order_though_members_die(seed: int) -> None:
    town = run(seed)
    assert exactly_once(town)
    assert town.accepted == town.asked


def fails(seed: int, uniform: bool = True, kind: type[OpenMember] = OpenMember) -> bool:
    """Something is lost or doubled; a client whose last message is lost waits for ever."""
    try:
        return not exactly_once(run(seed, uniform, kind))
    except AssertionError:
        return True


def test_without_uniform_delivery_what_was_accepted_can_be_lost() -> None:
    assert any(fails(seed, uniform=False) for seed in range(40))


class Forgetful(OpenMember):
    """Does not look whether a client's message was delivered before."""

    def _delivered(self, request: Request, now: int) -> list[object]:
        self.done.pop(request.client, None)
        return super()._delivered(request, now)


def test_a_broken_rule_is_seen() -> None:
    assert any(fails(seed, kind=Forgetful) for seed in range(20))


def test_copies_through_two_members_are_one_message() -> None:
    town = Town(Random(0))
    request = Request(100, 1, b"x")
    town.do(0, town.members[0].request(request, 0))
    town.do(1, town.members[1].request(request, 0))
    while town.under_way:
        town.step()
    assert all(log == [(100, 1)] for log in town.log.values())
    assert sum(m.duplicates for m in town.members.values()) == 4
    assert town.members[2].request(request, 0) == [ToClient(100, Accepted(100, 1))]


def test_a_next_message_waits_for_the_last_one() -> None:
    """The client was told by a member that the others have not caught up with yet."""
    town = Town(Random(0))
    assert town.members[3].request(Request(100, 2, b"second"), 0) == []
    town.do(0, town.members[0].request(Request(100, 1, b"first"), 0))
    while town.under_way:
        town.step()
    assert all(log == [(100, 1), (100, 2)] for log in town.log.values())


def test_bounds_are_kept_by_refusing() -> None:
    member = OpenMember(0, VectorClock(0), View(1, (0,)), max_clients=1)
    member.request(Request(100, 1, b""), 0)
    (answer,) = member.request(Request(101, 1, b""), 0)
    assert isinstance(answer, ToClient) and isinstance(answer.wire, Refused) and "1 clients" in answer.wire.reason
    client = Client(7, [0, 1], patience=5, max_queued=1)
    (first,) = client.publish(b"", 0)
    assert first.to == 0
    with pytest.raises(UsageError, match="wait already"):
        client.publish(b"", 0)
    (again,) = client.receive(Refused(7, 1, "no"), 1)
    assert again.to == 1  # the next one is asked at once
    assert client.receive(Accepted(7, 5), 2) == [] and client.wake(3) == []
    with pytest.raises(UsageError):
        Client(7, [], 5)
