"""A member's life over a journal, a model of what it has promised, and a disk that kills the process."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from whence.core.clock import Frame
from whence.core.ports import Deliver
from whence.live.net.disk import Files, Journal, Saved


def frame(first: int, count: int) -> Frame:
    payloads = [b"event %d" % s for s in range(first, first + count)]
    return Frame.of(0, 1, first, "10.0.0.1:7#1", ((1, first - 1),), payloads)


def seqs(saved: Saved) -> list[int]:
    """The events that go to the application after a restart."""
    return [s for d in saved.queue for s in range(d.frame.first, d.frame.last + 1)][saved.skip :]


class Life:
    """A run of a member and an application over a journal, as the runtime would do it. `log` is what the outside world
    has seen; a checkpoint is the number of the last event delivered by the member."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        saved = journal.load()
        self.saved = saved
        self.delivered = int(saved.checkpoint or b"0")
        self.waiting = seqs(saved)
        self.boot = journal.next_boot()

    def batch(self, count: int, sync: bool = True) -> None:
        f = frame(self.delivered + 1, count)
        self.journal.save(b"%d" % f.last, [Deliver(f, count % 2 == 0)], sync=sync)
        self.delivered = f.last
        self.waiting += range(f.first, f.last + 1)

    def process(self, count: int) -> None:
        self.journal.processed(count)
        del self.waiting[:count]


@dataclass
class World:
    """What has been promised to the outside: these must hold whatever happens."""

    boots: list[int] = field(default_factory=list)
    saved_to: int = 0  # `save` returned: the messages are sent
    asked_to: int = 0  # `save` was called: perhaps
    done: int = 0  # `processed` returned
    done_perhaps: int = 0

    def live(self, journal: Journal, rng: random.Random, steps: int) -> None:
        life = Life(journal)
        self.check(life)
        self.boots.append(life.boot)
        self.asked_to = self.saved_to = life.delivered
        self.done = self.done_perhaps = life.delivered - len(life.waiting)
        for _ in range(steps):
            if rng.random() < 0.5:
                count = rng.randint(1, 4)
                self.asked_to += count
                life.batch(count)
                self.saved_to = self.asked_to
            elif life.waiting:
                count = rng.randint(1, min(3, len(life.waiting)))
                self.done_perhaps += count
                life.process(count)
                self.done = self.done_perhaps

    def check(self, life: Life) -> None:
        """Nothing skipped, nothing twice, no boot again."""
        assert life.boot > max(self.boots, default=0)
        assert self.saved_to <= life.delivered <= self.asked_to
        first = life.waiting[0] if life.waiting else life.delivered + 1
        assert life.waiting == list(range(first, life.delivered + 1))
        assert self.done <= first - 1 <= self.done_perhaps
        assert life.saved.done == first - 1


class Killed(BaseException):
    """The process is gone."""


class KillingFiles(Files):
    """Dies in the n-th thing it does with files, a write half done."""

    def __init__(self, after: int, rng: random.Random) -> None:
        self.left, self.rng = after, rng

    def _tick(self) -> bool:
        self.left -= 1
        if self.left < 0:
            raise Killed
        return self.left == 0

    def create(self, path: Path) -> int:
        self._tick()
        return super().create(path)

    def write(self, fd: int, data: memoryview) -> int:
        if self._tick():
            super().write(fd, data[: self.rng.randint(0, len(data))])
            raise Killed
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        self._tick()

    def rename(self, old: Path, new: Path) -> None:
        self._tick()
        super().rename(old, new)

    def sync_directory(self, directory: Path) -> None:
        self._tick()

    def unlink(self, path: Path) -> None:
        self._tick()
        super().unlink(path)


def bury(journal: Journal) -> None:
    """What the kernel does for a killed process."""
    Files.close(journal._files, journal._lock or 0)
    if journal._fd is not None:
        Files.close(journal._files, journal._fd)
