"""Roles among real members: what a receive-only member publishes counts nowhere, and costs it its peers, not theirs."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable

import msgspec
import pytest

from tests.core.member.net import MS, App, MemberNet
from whence.core import ports
from whence.core.cast.messages import Gossip, News
from whence.core.clock import Frame
from whence.core.member import Member
from whence.core.order.messages import AckRecover
from whence.core.ring.messages import GoneNews, Holder, JoinedNews, ReleasedNews, RingNews
from whence.core.wire import decode, encode

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("needs the cryptography package", allow_module_level=True)

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from whence.core.order.recovery import GIVEN_FRAMES
from whence.live.net.keys import PublisherSeal

PRIVATE = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = PRIVATE.public_key()
MALLORY = 4
HONEST = range(4)


class SealedNet(MemberNet):
    """Every member verifies; all but one can sign."""

    def add(self, name: str, order: str, checkpoint: bytes | None = None) -> App:
        config = self.config(order)
        private = None if name == f"m{MALLORY}#1" else PRIVATE
        seal = PublisherSeal(private, PUBLIC, "lobby")
        app = App(Member(name, config, random.Random(f"{self.seed}/{name}"), checkpoint, seal))
        self.apps[name] = app
        return app

    def whisper(self, to: int, message: Gossip | AckRecover) -> list[ports.Output]:
        """Mallory sends this, whatever its own member thinks of it."""
        return self.feed(f"m{to}#1", ports.Received(f"m{MALLORY}#1", decode(encode(message))))


@pytest.fixture
def net() -> SealedNet:
    net = SealedNet(["causal"] * 5, tickets=4)
    net.coordinators(0, 1)
    net.publish(0, b"before")
    net.run(1000 * MS)
    assert all(len(net[i].events) == 1 for i in range(5))
    return net


def last_frame(net: MemberNet, i: int) -> Frame:
    (*_, published) = net[i].seen(ports.Published)
    assert isinstance(published, ports.Published)
    return published.frame


def next_frame(net: MemberNet) -> Frame:
    """What m0 would publish next, were it Mallory."""
    f = last_frame(net, 0)
    deps = tuple(f.stamp if t == f.ticket else entry for t, entry in enumerate(f.deps))
    return Frame.of(f.ticket, f.inc, f.last + 1, f.owner, deps, [b"forged"])


def unsigned(net: MemberNet) -> Frame:
    return next_frame(net)


def signed_by_nobody_known(net: MemberNet) -> Frame:
    f = next_frame(net)
    own = Ed25519PrivateKey.generate()
    seal = PublisherSeal(own, own.public_key(), "lobby")
    return msgspec.structs.replace(f, signature=seal.sign(f.unsigned()))


def with_a_signature_of_another_frame(net: MemberNet) -> Frame:
    return msgspec.structs.replace(next_frame(net), signature=last_frame(net, 0).signature)


def of_another_cluster(net: MemberNet) -> Frame:
    f = next_frame(net)
    return msgspec.structs.replace(f, signature=PublisherSeal(PRIVATE, PUBLIC, "kitchen").sign(f.unsigned()))


def with_half_a_signature(net: MemberNet) -> Frame:
    f = next_frame(net)
    return msgspec.structs.replace(f, signature=PublisherSeal(PRIVATE, PUBLIC, "lobby").sign(f.unsigned())[:63])


def in_its_own_name(net: MemberNet) -> Frame:
    f = next_frame(net)
    free = next(t for t, (inc, _) in enumerate(f.deps) if not inc)
    return Frame.of(free, f.inc, 1, f"m{MALLORY}#1", f.deps, [b"forged"])


FORGERIES = [
    unsigned,
    signed_by_nobody_known,
    with_a_signature_of_another_frame,
    of_another_cluster,
    with_half_a_signature,
    in_its_own_name,
]


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda f: f.__name__)
def test_forged_frames_count_nowhere_and_cost_the_forger_alone(
    net: SealedNet, forge: Callable[[MemberNet], Frame]
) -> None:
    forged = forge(net)
    for i in HONEST:
        cut, _gone = net.whisper(i, Gossip((forged,), (1,)))
        assert isinstance(cut, ports.CutOff) and cut.peer == f"m{MALLORY}#1" and cut.error.startswith("ForgedTicket")
    net.publish(0, b"after")
    net.publish(1, b"and after")
    net.run(2000 * MS)
    events = [net[i].events for i in HONEST]
    assert len(events[0]) == 3 and all(sorted(e) == sorted(events[0]) for e in events)
    for i in HONEST:
        assert list(net[i].member.cut_off) == [f"m{MALLORY}#1"], "nobody but the forger was cut off"
        assert not any(b"forged" in d.frame.body for d in net[i].seen(ports.Deliver) if isinstance(d, ports.Deliver))
    assert len(net[MALLORY].events) == 1, "nothing more is sent to it"


def test_altered_frames_count_nowhere(net: SealedNet) -> None:
    """A real frame on its way through Mallory's hands: every field is under the signature."""
    net.feed("m0#1", ports.Publish((b"pay bob 1",)))
    real = last_frame(net, 0)
    net.heap.clear()  # nobody but Mallory has got it
    changes = {
        "ticket": (real.ticket + 1) % 4,
        "inc": real.inc + 1,
        "first": real.first + 1,
        "owner": "m1#1",
        "deps": tuple((0, 0) for _ in real.deps),
        "orphans": ((1, real.inc, 1),),
        "body": Frame.of(0, 1, 1, "x", (), [b"pay eve 9"]).body,
        "prior": (1, real.inc, 1),
    }
    seal = PublisherSeal(None, PUBLIC, "lobby")
    assert seal.verify(real.unsigned(), real.signature)
    for name, value in changes.items():
        altered = msgspec.structs.replace(real, **{name: value})
        assert altered != real and not seal.verify(altered.unsigned(), altered.signature), name
    altered = msgspec.structs.replace(real, body=changes["body"])
    for i in (1, 2, 3):
        cut, _gone = net.whisper(i, Gossip((altered,), (1,)))
        assert isinstance(cut, ports.CutOff) and "not signed by a publisher" in cut.error
    net.run(3000 * MS)
    for i in HONEST:  # the real one comes by recovery
        assert len(net[i].events) == 2, net[i].events


def test_mallory_may_pass_on_what_others_signed(net: SealedNet) -> None:
    """To receive is also to forward: an honest forwarder without the key is no forger."""
    net.feed("m0#1", ports.Publish((b"news",)))
    real = last_frame(net, 0)
    net.heap.clear()
    out = net.whisper(2, Gossip((real,), (2,)))
    assert any(isinstance(o, ports.Deliver) for o in out) and not net[2].member.cut_off


def test_a_forged_answer_to_a_recovery_is_refused(net: SealedNet) -> None:
    net.publish(0, b"lost")
    lost = last_frame(net, 0)
    net.publish(0, b"found")
    net.heap.clear()
    net.feed("m3#1", ports.Received("m0#1", Gossip((last_frame(net, 0),), (1,))))
    asked: dict[int, object] = {}
    while not asked:
        net.now += 50 * MS
        net.feed("m3#1", ports.Wake())
        asked = dict.fromkeys(net[3].member.ordering.pursuits.nonces)
    forged = msgspec.structs.replace(lost, body=Frame.of(0, 1, 1, "x", (), [b"forged"]).body)
    (nonce, *_) = asked
    cut, _gone = net.whisper(3, AckRecover(nonce, (forged,)))
    assert isinstance(cut, ports.CutOff) and cut.peer == f"m{MALLORY}#1"
    net.run(3000 * MS)
    assert len(net[3].events) == 3, "the answer of an honest member came after the forged one"


def test_old_frames_again_and_again_cost_few_checks_and_nobodys_copies(net: SealedNet) -> None:
    """Mallory keeps what others publish, and hands it to m2 for as long as it likes: as gifts, and as gossip."""
    for _ in range(30):
        net.publish(0, b"x")
        net.run(20 * MS)
    old, checks = [f for f in net[2].member.ordering.buffer if f.owner == "m0#1"], []
    member = net[2].member
    verify = member.seal.verify
    member.seal.verify = lambda *args: (checks.append(args), verify(*args))[1]
    member.ordering.buffer.bound = len(member.ordering.buffer)  # it is full
    there = {f.key for f in member.ordering.buffer}
    member.cast._seen.clear()  # it has forgotten them
    for n in range(100):
        net.whisper(2, AckRecover(0, tuple(old)))
        net.whisper(2, Gossip((old[n % len(old)],), (1,)))
    assert len(checks) <= GIVEN_FRAMES + len(old), "of those that it has had, one handover in a round"
    assert {f.key for f in member.ordering.buffer} == there and not member.cut_off


def test_publishing_is_refused_at_home(net: SealedNet) -> None:
    """An honest receive-only member does not ask for a ticket that it could not use."""
    out = net.feed(f"m{MALLORY}#1", ports.Coordinate())
    assert [type(o) for o in out] == [ports.Refused]
    net.run(3000 * MS)
    assert net[MALLORY].member.ring.ticket is None
    net.feed(f"m{MALLORY}#1", ports.Publish((b"x",)))
    net.publish(0, b"after")
    net.run(1000 * MS)
    assert [len(net[i].events) for i in range(5)] == [2] * 5, "and it still receives"
    assert not any(net[i].member.cut_off for i in range(5))


TOP = (1 << 64) - 1

LIES: list[RingNews] = [
    JoinedNews(Holder("m3#1", 0, TOP)),
    JoinedNews(Holder("m3#1", 1, 1 << 48 | 2)),
    GoneNews((0, 1, 2, 3), 1 << 48 | 1 << 24, "m3#1"),
    ReleasedNews(Holder("m0#1", 0, TOP), 1),
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: type(lie).__name__)
def test_news_that_no_publisher_signed_costs_nobody_a_ticket(net: SealedNet, lie: RingNews) -> None:
    owners = [net[i].member.ring.inc for i in (0, 1)]
    assert all(owners)
    news = News(f"m{MALLORY}#1", 1, encode(lie))
    for i in HONEST:
        cut, _gone = net.whisper(i, Gossip((news,), (1,)))
        assert isinstance(cut, ports.CutOff) and "no publisher" in cut.error
    net.run(3000 * MS)
    assert [net[i].member.ring.inc for i in (0, 1)] == owners
    assert net[0].member.may_publish and net[1].member.may_publish


def test_news_with_the_signature_of_other_news_counts_nowhere(net: SealedNet) -> None:
    """A signature is of the whole: who said it, which of its announcements it is, and what it says."""
    seal = PublisherSeal(PRIVATE, PUBLIC, "lobby")
    real = News("m0#1", 9, encode(JoinedNews(Holder("m3#1", 3, 1 << 48 | 9))))
    real = msgspec.structs.replace(real, signature=seal.sign(real.unsigned()))
    for i, change in enumerate(({"origin": "m1#1"}, {"number": 10}, {"body": encode(LIES[1])})):
        cut, _gone = net.whisper(i, Gossip((msgspec.structs.replace(real, **change),), (1,)))
        assert isinstance(cut, ports.CutOff)
    assert not any(isinstance(out, ports.CutOff) for out in net.whisper(3, Gossip((real,), (1,))))
    assert net[3].member.ring.coordinators()[3] == "m3#1"
