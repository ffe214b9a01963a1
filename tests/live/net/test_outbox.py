"""The outbox alone: what leaves before the disk has a step, what waits for it, and in which order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.live.net.disks import frame
from whence.core.cast.messages import Gossip, News, Subscribe
from whence.core.ports import Deliver, Output, Published, Remember, Send
from whence.core.ring.messages import Council, Known
from whence.live.net import outbox
from whence.live.net.outbox import Outbox
from whence.live.net.scribe import Scribe


class Disk:
    """A journal that keeps nothing, and whose syncs wait until they are let go."""

    rotates = False

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[BaseException | None], None]]] = []
        self.saved: list[bytes] = []

    def save(self, checkpoint: bytes, delivered: Any, arrived: Any, sync: bool) -> None:
        self.saved.append(checkpoint)

    def sync(self) -> None:
        pass

    def run(self, job: Callable[[], None], over: Callable[[BaseException | None], None]) -> None:
        self.jobs.append((job, over))

    def go_on(self) -> None:
        jobs, self.jobs = self.jobs, []
        for job, over in jobs:
            job()
            over(None)


FRAME = frame(1, 1)
ASKS = Send("b:1#1", Subscribe(1))
FRAMES = Send("b:1#1", Gossip((FRAME,), (0,)))


def made() -> tuple[Outbox, Disk, list[Output], list[Output]]:
    """An outbox, its disk, what was carried out, and what was sent early."""
    disk, done, early = Disk(), list[Output](), list[Output]()

    def finish(out: Sequence[Output], batch: object) -> None:
        done.extend(out)

    return Outbox(Scribe(disk, pytest.fail, disk.run), finish, early.extend), disk, done, early  # type: ignore[arg-type]


def test_what_needs_no_disk_is_carried_out_at_once() -> None:
    box, disk, done, early = made()
    box.put([ASKS, FRAMES], None, None)
    assert done == [ASKS, FRAMES] and not early and not disk.jobs


def test_a_question_is_sent_before_the_step_is_on_disk_and_an_event_is_not() -> None:
    box, disk, done, early = made()
    published = Published(FRAME)
    box.put([published, ASKS, FRAMES], None, b"one")
    assert early == [ASKS] and not done
    box.put([Deliver(FRAME)], None, None)  # it needs no disk, but its turn comes later
    assert not done
    disk.go_on()
    disk.go_on()
    assert disk.saved == [b"one"] and done == [published, FRAMES, Deliver(FRAME)]


def test_while_a_promise_is_not_on_disk_the_ring_is_silent() -> None:
    box, disk, _, early = made()
    news = Send("b:1#1", Gossip((News("a:1#1", 1, b""),), (0,)))
    box.put([Published(FRAME), news], None, b"one")
    assert len(early) == 1
    box.put([Remember(), news], None, b"two")
    assert len(early) == 1
    disk.go_on()
    disk.go_on()
    assert disk.saved == [b"one", b"two"]


@pytest.mark.parametrize("seed", range(4))
def test_a_promise_is_on_disk_before_the_ring_says_anything_of_its_step_or_a_later_one(seed: int) -> None:
    """Rule C3. What the ring says may overtake what was held back before it, but never a promise: the council takes
    messages in any order (`tests/core/ring/council/world.py`)."""
    rng, promises, sent = random.Random(seed), list[bytes](), set[int]()
    box, disk, done, early = made()
    for step in range(100):
        out: list[Output] = [Send("b:1#1", Known(Council(step, (), ())))]
        if rng.random() < 0.2:
            promises.append(b"%d" % step)
            out.append(Remember())
        box.put(out, None, b"%d" % step if isinstance(out[-1], Remember) or rng.random() < 0.3 else None)
        if rng.random() < 0.3:
            disk.go_on()
        for o in (*done, *early):
            if isinstance(o, Send) and isinstance(o.message, Known) and o.message.now.number not in sent:
                sent.add(o.message.now.number)
                assert all(p in disk.saved for p in promises if int(p) <= o.message.now.number)
    assert len(sent) > 30


def test_a_disk_that_stands_still_costs_messages_and_no_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "WAITING_STEPS", 3)
    monkeypatch.setattr(outbox, "UNWRITTEN_BYTES", 5 * outbox.STEP_BYTES)
    box, disk, done, _ = made()
    for _ in range(6):
        box.put([Published(FRAME), Deliver(FRAME), FRAMES], None, b"step")
    assert box.full and box.lost == 3
    while disk.jobs:
        disk.go_on()
    assert not box.full and done.count(Deliver(FRAME)) == 6 and done.count(FRAMES) == 3
