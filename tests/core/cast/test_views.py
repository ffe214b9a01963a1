"""Views: who is known, who is forgotten, who comes back; the rules at the head of `views.py`, one by one."""

from __future__ import annotations

import random
from collections import Counter
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.cast.cluster import ROUND, Cluster, config, names, news
from whence.core.cast import CastConfig, Gossip, MemberDown, MemberUp, Subscribe, Welcome, make, sizing
from whence.core.cast.gossip import EttbGossip
from whence.core.cast.messages import DOWN_REASONS, CastOutput, parts
from whence.core.cast.views import HINTS_EACH, LATE, PartialView
from whence.core.clock import MemberId, Send, member_id

A, B, C, D, E = names(5)
BOTH = pytest.mark.parametrize("view", ["full", "partial"])


def complete(cluster: Cluster) -> bool:
    """Every member knows exactly all the others."""
    ids = sorted(cluster.nodes)
    return all(sorted([*n.members(), m]) == ids for m, n in cluster.nodes.items())


def connected(cluster: Cluster) -> bool:
    """From every member, the views lead to every other (and to no further one alive)."""
    ids = list(cluster.nodes)
    forward = {m: [o for o in n.members() if o in cluster.nodes] for m, n in cluster.nodes.items()}
    backward: dict[MemberId, list[MemberId]] = {m: [] for m in ids}
    for m, others in forward.items():
        for o in others:
            backward[o].append(m)
    for edges in (forward, backward):
        seen, todo = {ids[0]}, [ids[0]]
        while todo:
            for o in edges[todo.pop()]:
                if o not in seen:
                    seen.add(o)
                    todo.append(o)
        if len(seen) < len(ids):
            return False
    return True


def dead_entries(cluster: Cluster) -> int:
    return sum(o not in cluster.nodes for n in cluster.nodes.values() for o in n.members())


# Invariants, over generated schedules

ADDRESSES = [f"h{i}:1" for i in range(6)]
MEMBER = st.builds(member_id, st.sampled_from(ADDRESSES), st.integers(0, 3))
ENTRIES = st.lists(st.tuples(MEMBER, st.integers(0, 30)), max_size=6).map(tuple)
STEP = st.one_of(
    st.tuples(st.just("gossip"), MEMBER, st.builds(Gossip, members=ENTRIES, unsubs=ENTRIES)),
    st.tuples(st.just("gossip"), MEMBER, st.builds(Welcome, ENTRIES)),
    st.tuples(st.just("gossip"), MEMBER, st.builds(Subscribe, st.integers(0, 9))),
    st.tuples(st.just("remove"), MEMBER, st.none()),
    st.tuples(st.just("wake"), st.integers(1, 4), st.none()),
)
SMALL = {"max_members": 6, "fanout": 2, "expire": 12, "unsubs_size": 3, "lost_size": 2, "lost_every": 2, "max_view": 4}


@BOTH
@given(steps=st.lists(STEP, max_size=40), seed=st.integers(0, 9))
def test_invariants(view: str, steps: list[tuple[str, object, object]], seed: int) -> None:
    me = member_id(ADDRESSES[0], 2)
    settings = config(view=view, view_size=3, subs_size=4, members=6, **SMALL)
    node = make(me, settings, random.Random(seed))
    present: set[MemberId] = set()
    outputs: list[CastOutput] = node.start([member_id(a, 1) for a in ADDRESSES[1:3]], 0, True)
    for kind, who, message in steps:
        if kind == "gossip":
            outputs += node.receive(who, message, node.wake_at - 1)  # type: ignore[arg-type]
        elif kind == "remove":
            node.remove(who)  # type: ignore[arg-type]
            present.discard(who)  # type: ignore[arg-type]
        else:
            outputs += node.wake(node.wake_at + (who - 1) * ROUND, None)  # type: ignore[operator]
        # outputs tell the same story as the view
        for o in outputs:
            if isinstance(o, MemberUp):
                assert o.member not in present
                present.add(o.member)
            elif isinstance(o, MemberDown):
                present.remove(o.member)
                assert o.reason in DOWN_REASONS
        present &= set(node.members()) if kind == "remove" else present
        outputs = []
        members = node.members()
        assert set(members) == present and len(members) == len(present)
        addresses = [parts(m)[0] for m in members]
        assert ADDRESSES[0] not in addresses  # never itself, in whatever life
        assert len(set(addresses)) == len(addresses)  # no two boots of an address
        assert len(members) <= (4 if view == "full" else 3)
        assert len(node.view.gone) <= 3 and len(node.view.lost) <= 2
        assert all(0 <= node.view.round - born < 12 + 4 for born in node.view.born.values())
        assert node.view.at == {parts(m)[0]: m for m in members}
        for m in members:
            tomb = node.view.gone.get(parts(m)[0])
            assert tomb is None or tomb.boot < parts(m)[1]
        if isinstance(node.view, PartialView):
            assert len(node.view.subs) <= 4
            assert all(parts(m)[0] == a for a, (m, _) in node.view.subs.items())
        for entries in (node.view.subscriptions(), node.view.unsubs(), node.view.welcome(5, B)):
            assert len(entries) <= 6
            assert len({m for m, _ in entries}) == len(entries)
            assert all(age >= 0 for _, age in entries)


# Joining and leaving


def test_joins_and_leaves_reach_everybody() -> None:
    cluster = Cluster(config(fanout=3), seed=1, loss=0.05)
    ids = names(40)
    cluster.genesis(ids[:3])
    for m in ids[3:]:  # each through the one before it: no distinguished member
        cluster.start(m, [ids[ids.index(m) - 1]])
        cluster.run(1)
    cluster.run(20)
    assert complete(cluster)
    for m in ids[10:15]:
        cluster.leave(m)
    cluster.run(8)
    assert complete(cluster)
    downs = Counter(o.reason for o in cluster.changes[A] if isinstance(o, MemberDown))
    assert downs == {"left": 5}  # far sooner than by expiry
    assert sizing.expire(35, 3, 10, 0.05) > 20


def test_a_newcomer_is_known_to_all_within_a_cast() -> None:
    """Newcomers spread like events, not like the one entry in `members / max_members` that old ones are."""
    cluster = Cluster(config(), seed=2)
    ids = names(120)
    cluster.genesis(ids)
    cluster.run(5)
    new = "new:1#1"
    cluster.start(new, [ids[7]])
    cluster.run(8)
    knowing = sum(new in n.members() for n in cluster.nodes.values())
    assert knowing >= 118
    assert len(cluster.nodes[new].members()) >= 100


def test_a_joiner_keeps_asking_until_somebody_answers() -> None:
    cluster = Cluster(config(), seed=3)
    ids = names(4)
    cluster.genesis(ids)
    cluster.cut = lambda a, b: True
    cluster.start("new:1#1", ["nobody:1#1", ids[2]])
    cluster.run(5)
    cluster.cut = lambda a, b: False
    cluster.run(12)
    assert complete(cluster)


@BOTH
def test_a_leaver_is_not_brought_back_by_stale_entries(view: str) -> None:
    node = make(A, config(view=view, expire=20, members=5), random.Random(1))
    node.start([B, C, D], 0, True)
    assert node.receive(C, Gossip(unsubs=((B, 0),)), 0) == [MemberDown(B, "left")]
    for r in range(1, 19):
        node.wake(r * ROUND, None)
        assert node.receive(D, Gossip(members=((B, r), (D, 0))), r * ROUND) == []
        assert node.receive(D, Gossip(members=((B, 0),)), r * ROUND) == []  # a message it sent before it left
    assert B not in node.members()
    assert node.stats.refused == 36
    assert (B, 0) not in node.view.unsubs()


def test_leavers_are_spread_for_termination_rounds_and_forgotten_after_expiry() -> None:
    node = make(A, config(in_step=True, expire=9, termination=3), random.Random(1))
    node.start([B, C, D], 0, True)
    node.receive(C, Gossip(unsubs=((B, 1),)), 0)
    ages = []
    for r in range(1, 10):
        node.wake(r * ROUND, None)
        node.receive(C, Gossip(members=((C, 0), (D, 0))), r * ROUND)
        ages.append(node.view.unsubs())
    assert ages == [((B, 2),), ((B, 3),), ((B, 4),)] + [()] * 6
    assert node.view.gone == {}


@BOTH
def test_remove_keeps_hearsay_out_but_not_the_member_itself(view: str) -> None:
    node = make(A, config(view=view), random.Random(1))
    node.start([B, C, D], 0, True)
    node.remove(B)
    assert sorted(node.members()) == [C, D]
    assert node.receive(C, Gossip(members=((B, 0),)), 0) == []
    assert node.view.unsubs() == ()  # our opinion, not to be spread
    assert MemberUp(B) in node.receive(B, Subscribe(5), 0)
    assert (node.stats.removed, node.stats.left) == (1, 0)


# Boots


@BOTH
def test_a_newer_boot_replaces_an_older_one_for_good(view: str) -> None:
    node = make(A, config(view=view), random.Random(1))
    node.start([B, C, D], 0, True)
    newer = member_id(parts(B)[0], 2)
    teller = C if view == "partial" else newer
    assert node.receive(teller, Gossip(members=((newer, 3),)), 0) == [MemberDown(B, "restarted"), MemberUp(newer)]
    assert node.receive(D, Gossip(members=((B, 0),)), 0) == []
    assert node.receive(D, Gossip(unsubs=((B, 0),)), 0) == []  # the old life's farewell
    assert sorted(node.members()) == sorted([newer, C, D])
    # nor once the newer one has left
    node.receive(C, Gossip(unsubs=((newer, 0),)), 0)
    assert node.receive(D, Gossip(members=((B, 0), (newer, 0))), 0) == []
    assert sorted(node.members()) == [C, D]


# Expiry


@BOTH
def test_crashed_members_expire_everywhere_and_stay_away(view: str) -> None:
    settings = config(view=view, view_size=12, members=40)
    cluster = Cluster(settings, seed=5, loss=0.05)
    ids = names(40)
    cluster.genesis(ids)
    cluster.run(10)
    for m in ids[30:]:
        cluster.crash(m)
    cluster.run(5)
    assert dead_entries(cluster) > 0
    cluster.run(settings.expire_rounds(40) + 2)
    assert dead_entries(cluster) == 0
    for _ in range(40):
        cluster.run(1)
        assert dead_entries(cluster) == 0
    assert complete(cluster) if view == "full" else connected(cluster)


@pytest.mark.parametrize(("members", "loss"), [(30, 0.05), (60, 0.2)])
def test_live_members_are_expired_as_rarely_as_the_formula_says(members: int, loss: float) -> None:
    """`P(age > STALENESS + x) <= m^x`: the tail that `sizing.expire` extrapolates, as far as it can be measured."""
    cluster = Cluster(config(expire=1_000_000), seed=6, loss=loss)
    cluster.genesis(names(members))
    cluster.run(20)
    ages: Counter[int] = Counter()
    for _ in range(300 if members < 50 else 150):
        cluster.run(1)
        for n in cluster.nodes.values():
            ages.update(n.view.round - born for born in n.view.born.values())
    total = sum(ages.values())
    rate = min(4, members - 1) * min(10, members - 1) * (1 - loss) / (members - 1)
    m = max(exp(-rate), loss, 1e-3)
    for x in range(max(ages) + 1):
        beyond = sum(n for age, n in ages.items() if age > sizing.STALENESS + x)
        assert beyond <= total * m**x + 10, (x, beyond, total * m**x)
    assert max(ages) < sizing.expire(members, 4, 10, loss)
    assert total > 25_000


def test_too_old_an_entry_is_never_taken() -> None:
    node = make(A, config(expire=10), random.Random(1))
    node.start([B, C], 0, True)
    assert node.receive(B, Gossip(members=((D, 10),)), 0) == []
    assert node.receive(B, Gossip(members=((D, 9),)), 0) == [Send(D, Subscribe(1))]
    assert node.stats.refused == 1


def test_a_sleeper_does_not_wake_the_dead() -> None:
    """Entries age by time, not by the rounds their holder happened to make."""
    cluster = Cluster(config(expire=15), seed=8)
    ids = names(6)
    cluster.genesis(ids)
    cluster.run(5)
    cluster.crash(B)
    sleeper = cluster.nodes.pop(C)
    cluster.run(40)
    assert not any(B in n.members() or C in n.members() for n in cluster.nodes.values())
    cluster.nodes[C] = sleeper
    assert B in sleeper.members()
    for _ in range(30):
        cluster.run(1)
        assert not any(B in n.members() for n in cluster.nodes.values())
    assert complete(cluster)  # it tried its lost contacts


def test_an_invented_crowd_fills_neither_the_view_nor_the_memory() -> None:
    """400 names of one liar, in every round: it makes others knock at eight doors, and none of them becomes a member.
    What an honest member tells is asked at once all the same."""
    node = make(A, config(), random.Random(1))
    node.start([B, C, D], 0, True)
    for i in range(40):
        fakes = ((B, 0), *((f"fake{i}-{k}:1#1", 0) for k in range(400)))
        asked = [o.to for o in node.receive(B, Gossip(members=fakes), 0) if isinstance(o, Send)]
        assert len(asked) <= HINTS_EACH and len(node.view.hints) <= HINTS_EACH
        for m in (C, D):
            node.receive(m, Gossip(members=((m, 0),)), 0)
        node.wake(node.wake_at, None)
        assert sorted(node.members()) == [B, C, D]
        for told in (node.view.subscriptions(), node.view.welcome(100, "x:1#1")):
            assert {m for m, _ in told} <= {A, B, C, D}
    honest = member_id("m9:1", 1)
    assert node.receive(C, Gossip(members=((honest, 1),)), 0) == [Send(honest, Subscribe(1))]
    assert node.receive(honest, Welcome(((honest, 0),)), 0) == [MemberUp(honest)]


def test_a_liar_that_says_again_and_again_that_others_have_left_is_believed_once() -> None:
    """C speaks in every round, and B says in every round that C has left."""
    node = make(A, config(), random.Random(1))
    node.start([B, C, D], 0, True)
    away = 0
    for _ in range(100):
        node.receive(C, Gossip(members=((C, 0),)), 0)
        node.receive(B, Gossip(members=((B, 0),), unsubs=((C, 0),)), 0)
        away += C not in node.members()
        node.wake(node.wake_at, None)
    assert away <= LATE + 1
    node.receive(C, Gossip(unsubs=((C, 0),)), 0)
    assert C not in node.members(), "it says so itself"


@BOTH
def test_a_liar_that_tells_each_of_two_that_the_other_has_left_parts_them_once(view: str) -> None:
    """Neither knows the other any more, so neither would speak to the other, and all others may be told the same."""
    nodes = {m: make(m, config(view=view), random.Random(m)) for m in (A, C)}
    for me, node in nodes.items():
        node.start([m for m in (A, B, C) if m != me], 0, True)
    apart = 0
    for _ in range(200):
        post: list[tuple[str, Send]] = []
        for me, node in nodes.items():
            other = C if me == A else A
            node.receive(B, Gossip(members=((B, 0),), unsubs=((other, 0),)), 0)
            post += [(me, o) for o in node.wake(node.wake_at, None) if isinstance(o, Send)]
            apart += other not in node.members()
        for sender, step in post:
            if step.to in nodes:
                more = nodes[step.to].receive(sender, step.message, 0)
                post += [(step.to, o) for o in more if isinstance(o, Send)]
    assert apart <= 2 * (LATE + 2), apart
    assert A in nodes[C].members() and C in nodes[A].members()


# Partitions


@BOTH
@pytest.mark.parametrize("seed", range(2))
def test_a_partition_longer_than_the_expiry_merges_when_healed(view: str, seed: int) -> None:
    settings = config(view=view, view_size=10, members=24, lost_size=5)
    cluster = Cluster(settings, seed=seed)
    ids = names(24)
    cluster.genesis(ids)
    cluster.run(10)
    side = dict.fromkeys(ids[:9], 1)
    cluster.cut = lambda a, b: (a in side) != (b in side)
    cluster.run(settings.expire_rounds(24) + 10)
    for m, n in cluster.nodes.items():
        assert all((m in side) == (o in side) for o in n.members())
        assert len(n.view.lost) <= 5
    for inside in (True, False):  # each side remembers somebody of the other
        far = [m for m, n in cluster.nodes.items() if any((o in side) != inside for o in n.view.lost.values())]
        assert len([m for m in far if (m in side) == inside]) >= 3
    cluster.cut = lambda a, b: False
    cluster.run(40)
    if view == "full":
        assert complete(cluster)
    else:
        assert connected(cluster)
        assert any((m in side) != (o in side) for m, n in cluster.nodes.items() for o in n.members())
    item = news(A)
    cluster.broadcast(A, item)
    cluster.run(8)
    assert cluster.reached(item) >= 21


# The partial view


def test_partial_views_stay_connected_and_uniform_under_churn() -> None:
    settings = CastConfig(round=ROUND, view="partial", view_size=15, members=60)
    cluster = Cluster(settings, seed=9, loss=0.05)
    ids = names(60)
    # Everybody joins through one and the same member: the worst start for a random graph.
    cluster.genesis(ids[:1])
    for m in ids[1:]:
        cluster.start(m, [ids[0]])
    cluster.run(15)
    assert connected(cluster)
    rng = random.Random(10)
    alive, serial = list(ids), 0
    for _ in range(12):  # each round one leaves, one crashes, two join
        for act in (cluster.leave, cluster.crash):
            act(alive.pop(rng.randrange(len(alive))))
        for _ in range(2):
            serial += 1
            new = member_id(f"new{serial}:1", 1)
            cluster.start(new, rng.sample(alive, 2))
            alive.append(new)
        cluster.run(1)
        assert connected(cluster)
    cluster.run(10)
    degree = Counter(o for n in cluster.nodes.values() for o in n.members() if o in cluster.nodes)
    assert min(degree[m] for m in alive) >= 2 and max(degree.values()) <= 4 * 15
    assert all(len(n.members()) == 15 for n in cluster.nodes.values())
    before = len(cluster.nodes)
    item = news(alive[0], 1)
    cluster.broadcast(alive[0], item)
    cluster.run(8)
    assert cluster.reached(item) >= 0.85 * before


def test_partial_views_recirculate_what_they_evict() -> None:
    node = make(A, config(view="partial", view_size=5, subs_size=6, members=20), random.Random(1))
    node.start(names(6)[1:], 0, True)
    out = node.receive(B, Gossip(members=(("new:1#1", 0),)), 0)
    assert out[0] == MemberUp("new:1#1") and isinstance(out[1], MemberDown) and out[1].reason == "evicted"
    assert isinstance(node.view, PartialView)
    assert parts(out[1].member)[0] in node.view.subs or node.stats.subs_dropped > 0
    assert node.stats.evicted == 1 and len(node.members()) == 5


# A member's own word, against lies and wrong clocks (rule 3)


def hears(node: EttbGossip, sender: MemberId, message: Gossip, now: int = 0) -> None:
    node.receive(sender, message, now)


def pass_rounds(node: EttbGossip, rounds: int) -> None:
    for _ in range(rounds):
        node.wake(node.wake_at, None)


@BOTH
@pytest.mark.parametrize("boot", [7, (1 << 64) - 1])
@pytest.mark.parametrize("lie", ["members", "unsubs"])
def test_a_forged_boot_does_not_ban_an_address(view: str, boot: int, lie: str) -> None:
    node = make(A, config(view=view), random.Random(1))
    node.start([B, C], 0, genesis=True)
    forged = member_id(parts(B)[0], boot)
    hears(node, C, Gossip(**{lie: ((forged, 0),)}))
    for _ in range(3 * LATE):
        hears(node, B, Gossip(members=((B, 0),)))
        hears(node, C, Gossip(members=((C, 0),)))
        pass_rounds(node, 1)
    assert sorted(node.members()) == sorted([B, C])


@BOTH
def test_a_boot_far_in_the_future_is_refused(view: str) -> None:
    node = make(A, config(view=view), random.Random(1))
    node.start([B], 0, genesis=True)
    for member in (member_id("x:1", (1 << 64) - 1), member_id("y:1", 5)):
        hears(node, member, Gossip(members=((member, 0),)))
    assert sorted(node.members()) == sorted([B, member_id("y:1", 5)]) and node.stats.refused == 1


@BOTH
def test_a_member_whose_clock_was_ahead_is_back_after_its_restart(view: str) -> None:
    """It has spoken under the greater boot, and others still pass that on."""
    node = make(A, config(view=view), random.Random(1))
    node.start([C], 0, genesis=True)
    ahead, after = member_id("b:1", 86_400_000), member_id("b:1", 5)
    hears(node, ahead, Gossip(members=((ahead, 0),)))
    assert ahead in node.members()
    hears(node, after, Gossip(members=((after, 0),)))
    assert ahead in node.members(), "that may be a message of an earlier life"
    for _ in range(2 * LATE):
        hears(node, after, Gossip(members=((after, 0),)))
        hears(node, C, Gossip(members=((C, 0),)))
        pass_rounds(node, 1)
    assert sorted(node.members()) == sorted([C, after])
