"""ETTB gossip: ages, caps, history, the eager mode; always among three or more."""

from __future__ import annotations

import random

import pytest

from tests.core.cast.cluster import ROUND, Cluster, config, names, news
from whence.core.cast import EttbGossip, First, Gossip, Heard, MemberUp, Subscribe, Welcome, make
from whence.core.cast.messages import NEVER_WAKE, CastOutput
from whence.core.clock import Digest, Frame, Send
from whence.errors import ConfigError, UsageError

IDS = names(8)
A, B, C, D = IDS[:4]


def alone(**fields: object) -> EttbGossip:
    """One member among eight, to be stepped by hand."""
    node = make(A, config(in_step=True, **fields), random.Random(7))
    assert isinstance(node, EttbGossip)
    node.start(IDS[1:], 0, True)
    return node


def gossips(outputs: list[CastOutput]) -> list[tuple[str, Gossip]]:
    return [(o.to, o.message) for o in outputs if isinstance(o, Send) and isinstance(o.message, Gossip)]


def message_of(outputs: list[CastOutput]) -> Gossip:
    """The one message that all targets get: the very same object."""
    sent = gossips(outputs)
    assert all(m is sent[0][1] for _, m in sent)
    return sent[0][1]


# Rounds


def test_an_item_is_forwarded_for_termination_rounds_with_growing_age() -> None:
    node = alone(fanout=3, termination=3)
    item = news(A)
    assert node.broadcast(item, 0) == []
    for r, expected in enumerate([(1,), (2,), (3,), ()], 1):
        out = node.wake(r * ROUND, None)
        targets = [to for to, _ in gossips(out)]
        assert len(set(targets)) == 3 and A not in targets
        assert message_of(out).ages == expected
        assert message_of(out).items == ((item,) if expected else ())


@pytest.mark.parametrize(("arrives", "forwarded"), [(1, [2, 3]), (2, [3]), (3, []), (4, [])])
def test_a_received_item_has_the_age_its_message_says(arrives: int, forwarded: list[int]) -> None:
    node = alone(termination=3)
    item = news(B)
    assert node.receive(B, Gossip((item,), (arrives,)), 1) == [First(item, B, arrives)]
    ages = [message_of(node.wake(r * ROUND, None)).ages for r in (1, 2, 3)]
    assert [a for (a,) in filter(None, ages)] == forwarded


@pytest.mark.parametrize("in_step", [True, False])
def test_ages_in_a_cluster_run_from_one_to_termination(in_step: bool) -> None:
    cluster = Cluster(config(in_step=in_step, fanout=2, termination=4), seed=3)
    cluster.genesis(names(20))
    cluster.broadcast(A, news(A))
    cluster.run(10)
    ages = [age for got in cluster.first.values() for _, age in got]
    assert set(ages) == {1, 2, 3, 4}
    assert cluster.first[A] == []  # one's own item does not come back
    sent = sum(n.stats.events_sent for n in cluster.nodes.values())
    # every member forwards in each round from the age at which it got the item to the last
    assert sent == 2 * (4 + sum(4 - age for age in ages))


def test_when_items_do_not_fit_the_youngest_go_first() -> None:
    node = alone(max_events=3, termination=5, max_members=2)
    for number, age in ((1, 4), (2, 1), (3, 2), (4, 1), (5, 3)):
        node.receive(B, Gossip((news(B, number),), (age,)), 1)
    message = message_of(node.wake(ROUND, None))
    assert [i.key[1] for i in message.items] == [2, 4, 3]
    assert message.ages == (2, 2, 3)
    assert node.stats.truncated == 2
    assert message_of(node.wake(2 * ROUND, None)).ages == (3, 3, 4)  # the others are still behind them
    assert node.stats.truncated == 3  # number 5; number 1 is past its time


def test_of_items_of_one_age_a_random_part_fits() -> None:
    node = alone(max_events=2, termination=50, fanout=1)
    chosen = set()
    for number in range(4):
        node.broadcast(news(A, number), 0)
    for r in range(1, 20):
        chosen |= {i.key for i in message_of(node.wake(r * ROUND, None)).items}
    assert len(chosen) == 4


def test_bytes_cap_a_message_but_one_item_always_goes() -> None:
    node = alone(max_bytes=500)
    for number in range(3):
        node.broadcast(news(A, number, b"x" * 200), 0)
    message = message_of(node.wake(ROUND, None))
    assert len(message.items) == 2 and node.stats.truncated == 1
    node = alone(max_bytes=500)
    node.broadcast(news(A, 1, b"x" * 5000), 0)
    assert len(message_of(node.wake(ROUND, None)).items) == 1
    node.broadcast(news(A, 2, b"x"), 0)
    assert [i.key for i in message_of(node.wake(2 * ROUND, None)).items] == [(A, 2)]


@pytest.mark.parametrize("limit", [{"buffer": 3}, {"buffer_bytes": 3 * news(B).size}])
def test_an_overflowing_buffer_drops_the_oldest_and_counts_it(limit: dict[str, int]) -> None:
    node = alone(max_events=3, **limit)
    for number, age in ((1, 2), (2, 4), (3, 1), (4, 3), (5, 1)):
        node.receive(B, Gossip((news(B, number),), (age,)), 1)
    assert [i.key[1] for i in message_of(node.wake(ROUND, None)).items] == [3, 5, 1]
    assert node.stats.overflow == 2
    assert node.stats.truncated == 0


def test_buffer_accounts_return_to_zero() -> None:
    node = alone(termination=4, max_events=5, buffer=30)
    rng = random.Random(1)
    for r in range(1, 60):
        for i in range(rng.randrange(6)):
            node.broadcast(news(A, 100 * r + i, b"x" * rng.randrange(50)), r * ROUND)
        node.wake(r * ROUND, None)
        assert 0 <= node._buffer.count <= 30
    for r in range(60, 66):
        node.wake(r * ROUND, None)
    assert (node._buffer.count, node._buffer.bytes) == (0, 0)


def test_duplicates_are_counted_and_not_handed_up() -> None:
    node = alone()
    frame = Frame.of(0, 1, 1, B, ((0, 0),), [b"x"])
    again = Frame.of(0, 1, 1, B, ((0, 0),), [b"x"])  # another object, as from the wire
    assert node.receive(B, Gossip((frame,), (1,)), 0) == [First(frame, B, 1)]
    assert node.receive(C, Gossip((again, news(C), news(C)), (1, 2, 2)), 0) == [First(news(C), C, 2)]
    assert node.broadcast(again, 0) == []
    assert (node.stats.firsts, node.stats.duplicates) == (2, 3)


def test_too_small_a_history_forgets_the_oldest_and_hands_up_twice() -> None:
    node = alone(history=2)
    for number in (1, 2, 3):
        node.receive(B, Gossip((news(B, number),), (1,)), 0)
    assert node.receive(C, Gossip((news(B, 3), news(B, 2)), (1, 1)), 0) == []
    assert node.receive(C, Gossip((news(B, 1),), (1,)), 0) == [First(news(B, 1), C, 1)]
    assert node.stats.forgotten == 2 and len(node._seen) == len(node._order) == 2


def test_rounds_come_when_due_and_once_after_a_sleep() -> None:
    node = alone()
    assert node.wake_at == ROUND
    assert node.wake(ROUND - 1, None) == []
    node.wake(ROUND, None)
    assert node.wake_at == 2 * ROUND
    node.wake(7 * ROUND + 5, None)
    assert node.wake_at == 8 * ROUND
    assert node.stats.rounds == 2
    assert node.view.round == 7  # but everybody's silence was seven rounds long


def test_phases_are_random_unless_in_step() -> None:
    cluster = Cluster(config(), seed=1)
    cluster.genesis(IDS)
    assert len({n.wake_at for n in cluster.nodes.values()}) == 8
    assert all(0 < n.wake_at <= ROUND for n in cluster.nodes.values())


def test_the_digest_travels_and_is_heard_after_the_items() -> None:
    node = alone()
    digest = Digest(((1, 4),))
    assert message_of(node.wake(ROUND, digest)).digest == digest
    out = node.receive(B, Gossip((news(B),), (1,), digest), ROUND)
    assert out == [First(news(B), B, 1), Heard(B, digest)]


def test_a_leaver_sends_what_it_has_and_falls_silent() -> None:
    node = alone(termination=3)
    node.broadcast(news(A), 0)
    message = message_of(node.leave(5))
    assert message.items == (news(A),) and message.unsubs == ((A, 0),) and message.members == ()
    assert node.wake_at == NEVER_WAKE
    assert node.leave(6) == node.wake(10 * ROUND, None) == node.broadcast(news(A, 2), 7) == []
    assert node.receive(B, Gossip((news(B),), (1,)), 8) == []


# Eager


def test_eager_pushes_at_once_and_rounds_carry_only_digest_and_membership() -> None:
    node = alone(mode="eager", fanout=3)
    out = node.broadcast(news(A), 0)
    assert len(out) == 3 and message_of(out) == Gossip((news(A),), (1,))
    digest = Digest(((1, 1),))
    message = message_of(node.wake(ROUND, digest))
    assert message.items == () and message.digest == digest and message.members[0] == (A, 0)


def test_eager_forwards_the_new_items_of_a_message_once_in_one_message_and_not_back() -> None:
    node = alone(mode="eager", fanout=6, termination=4)
    node.receive(C, Gossip((news(C),), (1,)), 0)
    out = node.receive(B, Gossip((news(B, 1), news(C), news(B, 2), news(B, 3)), (1, 1, 2, 4)), 0)
    assert [o.item for o in out if isinstance(o, First)] == [news(B, 1), news(B, 2), news(B, 3)]
    assert message_of(out) == Gossip((news(B, 1), news(B, 2)), (2, 3))  # the third has come far enough
    assert sorted(to for to, _ in gossips(out)) == [m for m in IDS if m not in (A, B)]
    assert node.receive(D, Gossip((news(B, 1),), (1,)), 0) == []


def test_eager_in_a_handful_is_one_direct_push() -> None:
    cluster = Cluster(config(mode="eager", fanout=4), seed=2)
    cluster.genesis(names(5))
    cluster.broadcast(A, news(A))
    cluster.run(0.5)
    assert all(cluster.first[m] == [(news(A), 1)] for m in names(5)[1:])
    assert sum(n.stats.events_sent for n in cluster.nodes.values()) == 4


def test_eager_without_anybody_counts_what_only_repair_can_spread() -> None:
    node = make(A, config(mode="eager"), random.Random(1))
    node.start([], 0, True)
    assert node.broadcast(news(A), 0) == []
    assert node.stats.unsent == 1


# Joining


def test_joining_through_a_contact() -> None:
    node = make(D, config(max_welcome=3), random.Random(1))
    assert node.start([A], 0, False) == [Send(A, Subscribe(3))]
    first, *rest = node.wake(node.wake_at, None)  # no answer yet: ask again
    assert (first, rest) == (Send(A, Subscribe(3)), [])
    contact = alone(max_welcome=3)
    contact.remove(D)
    up, answer = contact.receive(D, Subscribe(3), 1)
    assert up == MemberUp(D)
    assert isinstance(answer, Send) and isinstance(answer.message, Welcome) and answer.to == D
    sample = [m for m, _ in answer.message.members]
    assert sample[0] == A and len(set(sample)) == 3 and D not in sample
    others = sample[1:]  # hearsay: they are asked themselves
    assert node.receive(A, answer.message, 2) == [MemberUp(A), *(Send(m, Subscribe(1)) for m in others)]
    for m in others:
        assert node.receive(m, Welcome(((m, 0),)), 3) == [MemberUp(m)]
    assert all(isinstance(m, Gossip) for _, m in gossips(node.wake(node.wake_at, None)))
    assert (D, 1) in message_of(contact.wake(ROUND, None)).members  # and so the word spreads


def test_samples_are_distinct_and_uniform() -> None:
    node = alone()
    assert node.members() == IDS[1:]
    hits = dict.fromkeys(IDS[1:], 0)
    for _ in range(3000):
        sample = node.sample(3)
        assert len(set(sample)) == 3
        for m in sample:
            hits[m] += 1
    mean = 9000 / len(hits)
    assert all(0.87 * mean < n < 1.13 * mean for n in hits.values())
    assert sorted(node.sample(100)) == IDS[1:]
    node.remove(C)
    assert C not in node.members()


# Misuse


def test_a_caller_without_a_proper_name_misuses_us() -> None:
    with pytest.raises(UsageError):
        make("nameless", config(), random.Random(1))
    with pytest.raises(UsageError):
        make(A, config(), random.Random(1)).start(["nameless"], 0, True)


@pytest.mark.parametrize(
    "fields",
    [
        {"fanout": 0},
        {"termination": 0},
        {"round": 0},
        {"max_members": 1},
        {"loss": 1.0},
        {"load": 0.0},
        {"history": -1},
        {"max_welcome": 0},
        {"view": "partial", "view_size": 4},
    ],
)
def test_bad_settings_are_named(fields: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"cast.{list(fields)[-1]}"):
        config(**fields)
