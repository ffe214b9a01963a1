"""Recovery as CCC11 prints it, requests once; and its other recovery buffer, which ages."""

from __future__ import annotations

import random

import pytest

from tests.core.order.net import MS, Net, config
from whence.core.clock import NEVER, Digest, Frame, Incarnation, Send
from whence.core.order.messages import Recover
from whence.core.order.outputs import OrderOutput
from whence.core.order.recovery import Pursuits, RecoveryBuffer
from whence.errors import ConfigError

INC = Incarnation(1, 0, 1).packed


def frame(ticket: int, seq: int) -> Frame:
    return Frame.of(ticket, INC, seq, f"p{ticket}#1", (NEVER, NEVER), [b""])


def test_the_oldest_by_age_leaves_a_full_buffer() -> None:
    frames = [frame(0, seq) for seq in (1, 2, 3)]
    born = (30, 10, 20)
    for aging, gone in ((False, 0), (True, 1)):
        buffer: RecoveryBuffer[int, Frame] = RecoveryBuffer(2, 1 << 20, aging)
        for f, at in zip(frames, born, strict=True):
            buffer.add(f.key, f, at)
        assert [f.key in buffer for f in frames] == [i != gone for i in range(3)]
        assert buffer.evicted == 1


def pursuits(recovery: str, once: bool) -> Pursuits[int]:
    settings = config("causal", 2, recovery=recovery, once=once, k=2)
    peers = ["a#1", "b#1", "c#1", "d#1"]
    return Pursuits(settings, random.Random(1), lambda k: peers[: k + 2], lambda ticket, inc: "source#1")


def ask(p: Pursuits[int], now: int) -> list[str]:
    out: list[OrderOutput] = p.due(now, lambda t, i, upto: [(t, i, 1, upto)])
    return [o.to for o in out if isinstance(o, Send) and isinstance(o.message, Recover)]


@pytest.mark.parametrize(("recovery", "asked"), [("R1", ["source#1"]), ("Rk", ["a#1", "b#1"])])
def test_an_event_is_asked_for_once(recovery: str, asked: list[str]) -> None:
    p = pursuits(recovery, once=True)
    p.want(0, INC, 1, 0)
    p.want(0, INC, 1, 0, holder="d#1")  # that d has it is not used
    assert ask(p, 10**12) == asked
    assert ask(p, 2 * 10**12) == []


def test_ours_also_asks_a_member_known_to_have_it() -> None:
    p = pursuits("Rk", once=False)
    p.want(0, INC, 1, 0)
    p.want(0, INC, 1, 0, holder="d#1")
    assert ask(p, 10**12) == ["d#1", "a#1", "b#1"]


@pytest.mark.parametrize("once", [True, False])
def test_what_only_a_digest_shows_is_asked_for_by_ours(once: bool) -> None:
    net = Net(["causal"] * 3, 2, seed=1, once=once)
    net.publish(0, 0, INC, to=[1])
    net.run(50 * MS, digests=None)
    net[2].ordering.heard("p1#1", Digest(((INC, 1), NEVER)), net.now)
    assert (net[2].ordering.wake_at is None) == once


def test_modes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match="cannot ask only once"):
        config("reliable", 2, once=True)
    with pytest.raises(ConfigError, match="fifo, age"):
        config("causal", 2, replacement="youngest")
