"""Messages to one member, in causal order with the broadcasts."""

from __future__ import annotations

import random

import msgspec
import pytest

from tests.core.member.net import MS, MemberNet
from tests.live.bridge.world import Step, inversions
from whence.core import ports
from whence.core.clock import StampedFrame
from whence.core.order.messages import DirectMessage
from whence.core.order.unicast import MAX_HELD, MAX_SENDING


class Talk:
    """Members that publish and send at random over links of any delay, one thing after the other."""

    def __init__(self, seed: int, waits: bool = True) -> None:
        self.dice = random.Random(seed)
        self.net = MemberNet(["reliable"] * 4, seed=seed)
        self.net.coordinators(0, 1, 2)
        self.waits = waits
        self.logs: list[list[Step]] = [[] for _ in range(4)]
        self.read = [len(self.net[i].events) for i in range(4)]
        self.busy: dict[int, int] = {}
        self.sent = 0

    def look(self) -> None:
        for i in range(4):
            app = self.net[i]
            self.logs[i] += [("read", name) for name in app.events[self.read[i] :]]
            self.read[i] = len(app.events)
            if i in self.busy and any(isinstance(o, ports.SentTo) and o.token == self.busy[i] for o in app.outputs):
                del self.busy[i]

    def step(self, n: int) -> None:
        i = self.dice.randrange(4)
        me = f"m{i}#1"
        if not (self.waits and i in self.busy):
            if self.dice.random() < 0.5:
                to = self.dice.choice([f"m{j}#1" for j in range(4) if j != i])
                self.net.delay = self.dice.choice([1, 5, 300]) * MS
                self.sent += 1
                self.logs[i].append(("say", f"{me}/{self.net[i].member.unicast._number + 1}"))
                self.busy[i] = n
                self.net.feed(me, ports.SendTo(n, to, b"%d" % n, 10**12))
            elif self.net[i].member.may_publish:
                self.net.delay = self.dice.choice([1, 40, 200]) * MS
                numbers = self.net[i].member.numbering()
                self.logs[i].append(("say", f"{numbers.before}{numbers.first}{numbers.after}"))
                self.net.publish(i)
        self.net.delay = self.dice.choice([1, 20]) * MS
        self.look()
        self.net.run(self.dice.choice([2, 30, 120]) * MS)
        self.look()

    def wrong(self) -> list[str]:
        for n in range(60):
            self.step(n)
        self.net.run(5000 * MS)
        self.look()
        said = {name for log in self.logs for what, name in log if what == "say"}
        read = [name for log in self.logs for what, name in log if what == "read"]
        direct = {name for name in said if "@" not in name}
        assert len(direct) == self.sent and all(read.count(name) == 1 for name in direct), "each once, at one member"
        assert all(read.count(name) == 4 for name in said - direct)
        return inversions(self.logs)


@pytest.mark.parametrize("seed", range(4))
def test_causal_order_among_messages_to_one_and_to_all(seed: int) -> None:
    assert Talk(seed).wrong() == []


def test_who_does_not_wait_for_the_answer_breaks_it() -> None:
    assert any(Talk(seed, waits=False).wrong() for seed in range(4))


def test_a_message_waits_for_its_past_and_is_taken_once() -> None:
    net = MemberNet(["causal", "causal", "reliable"])
    net.coordinators(0)
    b = net[1]
    past = tuple(net[0].member.ordering.T)
    net.publish(0, b"cause")
    cause = net[0].member.ordering.T
    frame = StampedFrame("m0#1", 1, 1, 1, ("m1#1",), b"", msgspec.msgpack.encode([b"to you"]))
    message = DirectMessage(frame, tuple(cause))
    for _ in range(2):
        net.feed("m1#1", ports.Received("m0#1", message))
    assert len(b.member.unicast.held) == 1 and b.member.buffers()["direct"] == (1, MAX_HELD)
    net.run(100 * MS)
    assert b.events[-2:] == [o.frame.names()[-1] for o in net[0].seen(ports.Deliver)[-1:]] + ["m0#1/1"]  # type: ignore[attr-defined]
    net.feed("m1#1", ports.Received("m0#1", message))
    assert b.events.count("m0#1/1") == 1
    other = msgspec.structs.replace(frame, owner="m2#1")
    for bad in (DirectMessage(other, past), DirectMessage(frame, past[:-1])):
        net.apps["m1#1"].member.cut_off.clear()
        net.feed("m1#1", ports.Received("m0#1", bad))
        assert "m0#1" in b.member.cut_off


def test_what_cannot_be_sent_is_said() -> None:
    net = MemberNet(["causal", "causal"])
    net.coordinators(0)
    for to in ("m0#1", "m9#1"):
        assert net.feed("m0#1", ports.SendTo(1, to, b"x", 10**9))[-1] == ports.SentTo(
            1, f"{to} is not another member that this one knows"
        )
    del net.apps["m1#1"]
    for token in range(MAX_SENDING):
        net.feed("m0#1", ports.SendTo(token, "m1#1", b"x", 10**9))
    assert "too many" in net.feed("m0#1", ports.SendTo(7, "m1#1", b"x", 10**9))[-1].refused  # type: ignore[union-attr]
    net.run(1500 * MS)
    sent = [o for o in net[0].outputs if isinstance(o, ports.SentTo) and "no answer" in o.refused]
    assert len(sent) == MAX_SENDING and net[0].member.unicast.wake_at is None
    free = MemberNet(["causal", "causal"], mechanism="vector")
    assert "without tickets" in free.feed("m0#1", ports.SendTo(1, "m1#1", b"x", 1))[-1].refused  # type: ignore[union-attr]
