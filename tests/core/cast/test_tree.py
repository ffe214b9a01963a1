"""Trees: one copy a member, repair of what they miss, neighbours that heal; always among three or more."""

from __future__ import annotations

import random
from collections import Counter

import pytest

import whence.core.cast.messages as msg
from tests.core.cast.cluster import ROUND, Cluster, config, names, news
from whence.core.cast import First, Gossip, Item, MemberUp, make
from whence.core.cast.tree import REQUESTS, SPARE, TreeCast
from whence.core.clock import MemberId, Send
from whence.errors import BadMessage

IDS = names(8)
A, B, C, D = IDS[:4]
LATENCY = ROUND // 100


def trees(n: int, seed: int = 1, loss: float = 0.0, **fields: object) -> Cluster:
    """A cluster whose members have found their neighbours."""
    cluster = Cluster(
        config(**{"mode": "tree", "members": n, "graft": 10 * LATENCY, "loss": 0.05, **fields}), seed, loss, LATENCY
    )
    cluster.genesis(names(n))
    cluster.run(3)
    return cluster


def tree(cluster: Cluster, member: MemberId) -> TreeCast:
    node = cluster.nodes[member]
    assert isinstance(node, TreeCast)
    return node


def links(cluster: Cluster) -> dict[MemberId, set[MemberId]]:
    return {m: set(tree(cluster, m).overlay.links) for m in cluster.nodes}


def connected(cluster: Cluster) -> bool:
    """Every member reaches every other over the links."""
    known = links(cluster)
    seen, todo = set[MemberId](), [next(iter(known))]
    while todo:
        member = todo.pop()
        if member not in seen:
            seen.add(member)
            todo += known[member] & known.keys()
    return len(seen) == len(known)


def pushes(cluster: Cluster) -> int:
    return sum(node.stats.events_sent for node in cluster.nodes.values())


def alone(**fields: object) -> TreeCast:
    """A member whose neighbours are B, C and D, to be stepped by hand; its first round is at `ROUND`."""
    node = make(A, config(mode="tree", in_step=True, neighbours=3, **fields), random.Random(7))
    assert isinstance(node, TreeCast)
    node.start([B, C, D], 0, True)
    for peer in (B, C, D):
        node.receive(peer, msg.NeighborReply(True), 0)
    assert list(node.overlay.links) == [B, C, D]
    return node


def sent(outputs: list[msg.CastOutput], kind: type[msg.CastMessage]) -> list[tuple[MemberId, msg.CastMessage]]:
    return [(o.to, o.message) for o in outputs if isinstance(o, Send) and isinstance(o.message, kind)]


def targets(outputs: list[msg.CastOutput], kind: type[msg.CastMessage] = Gossip) -> list[MemberId]:
    return [to for to, _ in sent(outputs, kind)]


# What a tree is


@pytest.mark.parametrize("n", [3, 10, 40])
def test_after_the_first_item_of_a_publisher_each_member_gets_one_copy(n: int) -> None:
    cluster = trees(n)
    cluster.run(10)
    for origin in names(n)[:2]:
        cluster.broadcast(origin, news(origin, 1))
        cluster.run(1)
        before = pushes(cluster)
        for number in range(2, 12):
            cluster.broadcast(origin, news(origin, number))
            cluster.run(1)
            assert cluster.reached(news(origin, number)) == n - 1
        assert pushes(cluster) - before == 10 * (n - 1)


def test_a_tree_of_shortest_paths_has_few_hops() -> None:
    cluster = trees(60)
    origin = names(60)[7]
    for number in range(1, 4):
        cluster.broadcast(origin, news(origin, number))
        cluster.run(1)
    ages = Counter(age for got in cluster.first.values() for item, age in got if item.key == (origin, 3))
    assert sum(ages.values()) == 59 and max(ages) <= 4


def test_the_tree_unused_for_the_longest_time_is_forgotten() -> None:
    node = alone(trees=2)
    for origin in (B, C):
        node.receive(origin, Gossip((news(origin, 1),), (1,)), 1)
        node.receive(D, msg.Prune((origin,)), 1)
    assert targets(node.receive(B, Gossip((news(B, 2),), (1,)), 2)) == [C]  # D does not want B's
    node.receive(D, Gossip((news(D, 1),), (1,)), 2)  # a third origin: C's tree, not B's, makes room
    assert targets(node.receive(B, Gossip((news(B, 3),), (1,)), 2)) == [C]
    assert targets(node.receive(C, Gossip((news(C, 2),), (1,)), 2)) == [B, D]


# Plumtree, step by step


def test_a_new_item_is_pushed_to_all_but_its_sender_and_announced_to_all() -> None:
    node = alone()
    item = news(B, 1)
    out = node.receive(B, Gossip((item,), (3,)), 5)
    assert First(item, B, 3) in out
    assert sent(out, Gossip) == [(C, Gossip((item,), (4,))), (D, Gossip((item,), (4,)))]
    rounds = [sent(node.wake(r * ROUND, None), msg.IHave) for r in (1, 2, 3)]
    assert sorted(rounds[0] + rounds[1]) == [(m, msg.IHave((item.key,), (4,))) for m in (B, C, D)]
    assert rounds[0] and rounds[1] and rounds[2] == [(m, msg.IHave()) for m, _ in rounds[0]]  # to everybody once


def test_each_neighbour_gets_the_news_of_two_rounds_in_order() -> None:
    node = alone()
    got: dict[str, list[object]] = {B: [], C: [], D: []}
    for r in range(1, 9):
        node.broadcast(news(A, r), (r - 1) * ROUND + 1)
        for to, message in sent(node.wake(r * ROUND, None), msg.IHave):
            assert isinstance(message, msg.IHave) and len(message.keys) == min(r, 2)
            got[to] += message.keys
    assert all(keys in ([(A, i) for i in range(1, 8)], [(A, i) for i in range(1, 9)]) for keys in got.values())


def test_a_second_copy_prunes_its_sender_and_a_copy_of_the_network_does_not() -> None:
    node = alone()
    first = Gossip((news(B, 1),), (1,))
    node.receive(B, first, 1)
    assert sent(node.receive(C, first, 2), msg.Prune) == [(C, msg.Prune((B,)))]
    assert sent(node.receive(B, first, 2), msg.Prune) == []  # it came twice from the parent
    assert targets(node.receive(B, Gossip((news(B, 2),), (1,)), 3)) == [D]
    assert node.receive(D, msg.Prune((B,)), 4) == []
    assert targets(node.receive(B, Gossip((news(B, 3),), (1,)), 5)) == []
    assert targets(node.broadcast(news(A, 1), 6)) == [B, C, D]  # another tree


def test_what_was_announced_and_does_not_come_is_asked_for_from_the_nearest() -> None:
    node = alone(graft=10)
    key = news(B, 1).key
    node.receive(C, msg.IHave((key,), (5,)), 0)
    node.receive(D, msg.IHave((key,), (2,)), 1)
    assert node.wake_at == 10 and node.wake(9, None) == []
    asked = []
    for _ in range(REQUESTS):
        asked += sent(node.wake(node.wake_at, None), msg.Graft)
    assert asked == [(D, msg.Graft((key,))), (C, msg.Graft((key,)))] * (REQUESTS // 2)
    node.wake(node.wake_at, None)
    assert node.stats.ungrafted == 1 and node.wake_at == ROUND


def test_what_comes_in_time_is_not_asked_for() -> None:
    node = alone(graft=10)
    node.receive(C, msg.IHave((news(B, 1).key,), (5,)), 0)
    node.receive(B, Gossip((news(B, 1),), (1,)), 9)
    assert node.wake_at == ROUND
    node.receive(C, msg.IHave((news(B, 1).key,), (5,)), 20)
    assert node.stats.grafted == 0


def test_who_asks_gets_the_item_and_what_follows() -> None:
    node = alone()
    for peer in (C, D):
        node.receive(B, Gossip((news(B, 1),), (1,)), 1)
        node.receive(peer, msg.Prune((B,)), 1)
    out = node.receive(D, msg.Graft((news(B, 1).key, news(B, 9).key)), 2)
    assert sent(out, Gossip) == [(D, Gossip((news(B, 1),), (2,)))] and node.stats.unheld == 1
    assert targets(node.receive(B, Gossip((news(B, 2),), (1,)), 3)) == [D]


def test_answers_are_cut_into_messages_that_a_peer_takes() -> None:
    node = alone(max_events=2, max_bytes=100)
    items = [news(A, i, bytes(30)) for i in range(1, 6)]
    for item in items:
        node.broadcast(item, 1)
    answers = [m for _, m in sent(node.receive(D, msg.Graft(tuple(i.key for i in items)), 2), Gossip)]
    got: list[Item] = [i for m in answers if isinstance(m, Gossip) for i in m.items]
    assert got == items and all(isinstance(m, Gossip) and len(m.items) <= 2 for m in answers)


def test_what_is_held_and_missing_is_bounded() -> None:
    node = alone(buffer=3, max_events=2, max_keys=4)
    for i in range(1, 6):
        node.broadcast(news(A, i), 1)
    node.receive(D, msg.Graft(((A, 1), (A, 2), (A, 3), (A, 4))), 2)
    assert node.stats.unheld == 2 and len(node._held) == 3
    node.receive(B, msg.IHave(tuple((B, i) for i in range(4)), (1,) * 4), 3)
    node.receive(B, msg.IHave(((B, 8),), (1,)), 3)
    assert node.stats.unwanted == 1


def test_held_bytes_are_bounded() -> None:
    node = alone(buffer=100, buffer_bytes=1000)
    for i in range(1, 20):
        node.broadcast(news(A, i, bytes(300)), 1)
    assert node._held.bytes <= 1000 and len(node._held) == 3


def test_without_neighbours_items_are_pushed_at_random() -> None:
    node = make(A, config(mode="tree", in_step=True, fanout=2, termination=2), random.Random(7))
    node.start(IDS[1:], 0, True)
    assert len(targets(node.broadcast(news(A, 1), 1))) == 2
    assert not sent(node.wake(ROUND, None), msg.IHave)  # nobody to announce it to
    assert targets(node.receive(B, Gossip((news(B, 1),), (2,)), 2)) == []  # old enough


# Neighbours, step by step


def test_a_member_asks_for_as_many_neighbours_as_it_wants_one_of_them_urgently() -> None:
    node = make(A, config(mode="tree", neighbours=3), random.Random(7))
    asked = sent(node.start(IDS[1:], 0, True), msg.Neighbor)
    assert [m for _, m in asked] == [msg.Neighbor(True), msg.Neighbor(False), msg.Neighbor(False)]
    assert len({to for to, _ in asked}) == 3
    refusing = asked[0][0]
    again = sent(node.receive(refusing, msg.NeighborReply(False), 1), msg.Neighbor)
    assert len(again) == 1 and again[0][0] not in {to for to, _ in asked}


def test_a_full_member_refuses_unless_it_is_urgent() -> None:
    node = alone()
    newcomers = [IDS[4 + i] for i in range(SPARE)]
    for m in newcomers:
        assert sent(node.receive(m, msg.Neighbor(False), 1), msg.NeighborReply) == [(m, msg.NeighborReply(True))]
    last = IDS[-1]
    assert sent(node.receive(last, msg.Neighbor(False), 1), msg.NeighborReply) == [(last, msg.NeighborReply(False))]
    out = node.receive(last, msg.Neighbor(True), 1)
    assert sent(out, msg.NeighborReply) == [(last, msg.NeighborReply(True))]
    ((evicted, _),) = sent(out, msg.Disconnect)
    assert last in node.overlay.links and evicted not in node.overlay.links
    assert evicted in node.members()  # a member still


def test_a_link_that_only_one_end_knows_of_heals() -> None:
    node = alone()
    stranger, full = IDS[5], IDS[6]
    node.receive(stranger, msg.IHave(), 1)
    assert stranger in node.overlay.links  # there is room
    for i in range(SPARE - 1):
        node.receive(names(20)[10 + i], msg.Neighbor(False), 1)
    assert targets(node.receive(full, msg.IHave(), 1), msg.Disconnect) == [full]
    assert sent(node.receive(B, msg.Disconnect(), 2), msg.Disconnect) == [] and B not in node.overlay.links


def test_a_silent_neighbour_is_replaced_and_asked_again_when_it_is_heard() -> None:
    node = alone(silence=2)
    for r in range(1, 5):
        for peer in (C, D):
            node.receive(peer, msg.IHave(), r * ROUND - 1)
        if r < 3:
            node.receive(B, Gossip(members=((B, 0),)), r * ROUND - 1)  # alive, but no neighbour's message
        node.wake(r * ROUND, None)
    assert list(node.overlay.links) == [C, D]
    assert sent(node.receive(B, Gossip(), 4 * ROUND + 1), msg.Neighbor) == [(B, msg.Neighbor(True))]


def test_a_pause_of_our_own_is_nobodys_silence() -> None:
    node = alone(silence=2)
    node.wake(ROUND, None)
    node.wake(50 * ROUND, None)
    assert list(node.overlay.links) == [B, C, D]


def test_a_lost_connection_replaces_the_neighbour_at_once() -> None:
    node = alone()
    for m in IDS[4:]:
        node.receive(m, Gossip(members=((m, 0),)), 1)
    address = B.split("#")[0]
    ((asked, _),) = sent(node.unreachable(address, 2), msg.Neighbor)
    assert asked in IDS[4:] and list(node.overlay.links) == [C, D]
    assert node.unreachable("nobody:1", 3) == []


def test_who_has_left_or_restarted_is_no_neighbour() -> None:
    node = alone()
    node.receive(C, Gossip(unsubs=((B, 0),)), 1)
    assert B not in node.overlay.links
    newer = C.replace("#1", "#2")
    assert MemberUp(newer) in node.receive(newer, Gossip(members=((newer, 0),)), 1)
    assert C not in node.overlay.links
    node.remove(D)
    assert not node.overlay.links


def test_whoever_leaves_tells_its_neighbours() -> None:
    node = alone(fanout=1)
    assert {B, C, D} <= set(targets(node.leave(5)))
    assert node.wake_at == msg.NEVER_WAKE
    assert node.receive(B, msg.IHave(), 6) == node.broadcast(news(A, 1), 7) == node.unreachable("m1:1", 8) == []


def test_bad_messages_are_refused() -> None:
    node = alone()
    with pytest.raises(BadMessage):
        node.receive("nobody", msg.Neighbor(True), 1)
    node.receive(B, msg.Prune(("ghost:1#1",)), 1)  # never pushed: nothing to remember
    assert node.overlay.links[B].lazy == set()


# Whole clusters


@pytest.mark.parametrize("view", ["full", "partial"])
def test_neighbours_are_mutual_few_and_connect_everybody(view: str) -> None:
    cluster = trees(40, view=view)
    cluster.run(10)
    known = links(cluster)
    degree = cluster.config.neighbours
    assert all(degree - 1 <= len(mine) <= degree + SPARE for mine in known.values())
    assert all(m in known[other] for m, mine in known.items() for other in mine)
    assert connected(cluster)


@pytest.mark.parametrize("seed", range(4))
def test_under_loss_everybody_gets_everything(seed: int) -> None:
    cluster = trees(25, seed, loss=0.1)
    items = [news(names(25)[i % 5], i) for i in range(40)]
    for item in items:
        cluster.broadcast(item.origin, item)
        cluster.run(0.5)
    cluster.run(5)
    assert [cluster.reached(item) for item in items] == [24] * 40


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_after_a_crash_of_many_the_rest_still_gets_everything(share: float) -> None:
    cluster = trees(40, view="partial", silence=3)
    ids = names(40)
    dead = random.Random(3).sample(ids[1:], int(share * 40))
    for i in range(3):
        cluster.broadcast(ids[0], news(ids[0], i))
        cluster.run(1)
    for m in dead:
        cluster.crash(m)
    cluster.run(10)
    assert connected(cluster)
    for i in range(10, 20):
        cluster.broadcast(ids[0], news(ids[0], i))
        cluster.run(1)
    cluster.run(5)
    assert all(sum(item.key[1] >= 10 for item, _ in cluster.first[m]) == 10 for m in cluster.nodes if m != ids[0])


def test_two_halves_grow_together_after_a_partition() -> None:
    cluster = trees(24, silence=3)
    ids = names(24)
    left = set(ids[:12])
    cluster.cut = lambda a, b: (a in left) != (b in left)
    cluster.run(12)
    assert not connected(cluster)
    cluster.cut = lambda a, b: False
    cluster.run(30)
    assert connected(cluster)
    cluster.broadcast(ids[0], news(ids[0], 1))
    cluster.run(3)
    assert cluster.reached(news(ids[0], 1)) == 23


def test_a_joiner_finds_neighbours() -> None:
    cluster = trees(12)
    joiner = names(13)[-1]
    cluster.start(joiner, [A])
    cluster.run(4)
    assert links(cluster)[joiner]
    cluster.broadcast(B, news(B, 1))
    cluster.run(3)
    assert cluster.reached(news(B, 1)) == 12
