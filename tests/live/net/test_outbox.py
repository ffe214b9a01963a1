"""The outbox alone: what leaves before the disk has a step, what waits for it, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.live.net.disks import frame
from whence.core.cast.messages import Gossip, News, Subscribe
from whence.core.ports import Deliver, Output, Published, Remember, Send
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
