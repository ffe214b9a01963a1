"""Lies about eras: no single message moves a ring far, and none makes a later founding impossible."""

from __future__ import annotations

import random

import pytest

import whence.core.ring.messages as msg
from tests.core.ring.world import ROUND, World, config
from whence.core.clock import Incarnation
from whence.core.ring.context import MAX_EPOCH_JUMP, MAX_TERM_JUMP, BecameOwner, Rejected, RingOutput
from whence.core.ring.neighbours import TolerantRing

TOP = (1 << 64) - 1
LAST_ERA = (1 << 40) - 1
FAR = msg.Tenure(1, TOP)


def three() -> tuple[World, list[str]]:
    w = World(config(8), publish=False)
    names = [w.add(f"p{i}") for i in range(3)]
    w.found(names[0])
    w.run(3)
    w.settle(names[1:])
    return w, names


NEWS: list[msg.RingNews] = [
    msg.JoinedNews(msg.Holder("p9#1", 7, TOP)),
    msg.GoneNews((0, 1, 2, 3, 4, 5, 6, 7), TOP, "p9#1"),
    msg.ReleasedNews(msg.Holder("p9#1", 7, TOP), 3),
]


def messages(to: msg.Tenure) -> list[msg.RingMessage]:
    """From p9, whom nobody knows, with an era at the end of all numbers."""
    holder = msg.Holder("p9#1", 1, TOP)
    return [
        msg.Reject(1, "no", True, LAST_ERA, ()),
        msg.AckCJoin(1, 1, FAR, to, holder, (), (), (msg.TicketRow(0, "p9#1", TOP, TOP, (TOP, 1)),)),
        msg.Poll(1, FAR, to, LAST_ERA, 0),
        msg.Update(1, FAR, to, LAST_ERA, (holder,), (msg.Tenure(0, TOP),)),
        msg.Exclude(1, FAR, 0),
        msg.ReqCoord(1, FAR, to, 3, LAST_ERA),
        msg.NackCoord(1, to, LAST_ERA),
    ]


@pytest.mark.parametrize("news", NEWS, ids=lambda news: type(news).__name__)
def test_news_of_the_end_of_all_numbers_cost_nobody_a_ticket(news: msg.RingNews) -> None:
    w, names = three()
    tenures = {name: w.procs[name].ring.inc for name in names}
    for name in names:
        proc = w.procs[name]
        proc.ring.hear(news, proc.local(w.now))
    w.run(5)
    assert {name: w.procs[name].ring.inc for name in names} == tenures
    assert all(w.procs[name].ring.entitled for name in names)


@pytest.mark.parametrize("number", range(7))
def test_messages_of_the_end_of_all_numbers_cost_nobody_a_ticket(number: int) -> None:
    w, names = three()
    tenures = {name: w.procs[name].ring.inc for name in names}
    for name in names:
        proc = w.procs[name]
        assert proc.ring.ctx.holder is not None
        message = messages(proc.ring.ctx.holder.tenure)[number]
        era = proc.ring.ctx.table.era
        proc.ring.receive("p9#1", message, proc.local(w.now))
        assert proc.ring.ctx.table.era == era and proc.ring.implausible == 1
    w.run(5)
    assert {name: w.procs[name].ring.inc for name in names} == tenures


def found(ring: TolerantRing, epoch: int, now: int) -> list[RingOutput]:
    out = ring.found(now, epoch)
    for round in range(40):
        out += ring.wake(now + round * ROUND)
    return out


def test_jumps_within_the_bound_are_believed_and_the_ring_can_be_founded_above_them() -> None:
    ring = TolerantRing("a#1", config(8), random.Random(1))
    heard = Incarnation(MAX_EPOCH_JUMP, MAX_TERM_JUMP, 1).packed
    ring.hear(msg.JoinedNews(msg.Holder("p9#1", 7, heard)), 1)
    assert ring.epoch == MAX_EPOCH_JUMP
    ring.hear(msg.JoinedNews(msg.Holder("p9#1", 7, heard + (1 << 2 * msg.ERA_SHIFT) * (MAX_EPOCH_JUMP + 1))), 2)
    assert ring.epoch == MAX_EPOCH_JUMP and ring.implausible == 1
    assert any(isinstance(out, BecameOwner) for out in found(ring, ring.epoch + 1, 3))


def test_what_a_snapshot_or_a_disk_tells_is_where_jumps_are_counted_from() -> None:
    ring = TolerantRing("a#1", config(8), random.Random(1))
    old = Incarnation(5000, 3, 1).packed
    ring.hear(msg.JoinedNews(msg.Holder("p9#1", 7, old)), 1)
    assert ring.epoch == 0
    ring.anchor(Incarnation(4990, 1, 1).packed)
    ring.hear(msg.JoinedNews(msg.Holder("p9#1", 7, old)), 2)
    assert ring.epoch == 5000


def test_epochs_that_are_used_up_are_a_refusal_and_no_crash() -> None:
    """Many lies in a row get there, where members are trusted with tickets; then the operator has to act."""
    ring = TolerantRing("a#1", config(8), random.Random(1))
    now = 0
    for _ in range(2 * msg.MAX_EPOCH // MAX_EPOCH_JUMP):
        now += 1
        epoch = min(ring.epoch + MAX_EPOCH_JUMP, msg.MAX_EPOCH - 1)
        ring.hear(msg.JoinedNews(msg.Holder("p9#1", 7, Incarnation(epoch, (1 << 24) - 1, 1).packed)), now)
        ring.hear(msg.JoinedNews(msg.Holder("p9#1", 7, Incarnation(epoch, MAX_TERM_JUMP, 1).packed)), now)
    out = found(ring, ring.epoch + 1, now)
    assert any(isinstance(o, Rejected) and "another name" in o.reason for o in out)
