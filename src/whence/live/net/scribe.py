"""Writes a member's journal without stopping the loop.

What may take long (a sync, a new generation of the log, the application's state) runs in a thread, one job at a time.
What comes meanwhile waits and is written together, with one sync for all of it (group commit). A short append runs at
once when nothing is under way. Every job says what to do when it is on disk; that happens in the order of the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from whence.core.clock import AnyFrame
from whence.core.ports import Deliver
from whence.live.net.queues import Signal

if TYPE_CHECKING:
    from whence.live.net.disk import Journal

SAVE_BYTES = 64 << 10
"""The application's state is written again when the log has grown by this, or by as much as was written with the last
state if that was more. So the state costs at most as much as the log, whatever its size."""

STILL_NS = 5 * 10**9
"""A disk that has written nothing for so long, though it was asked to, stands still."""

log = logging.getLogger("whence.live.net")

RunJob = Callable[[Callable[[], None], Callable[[BaseException | None], None]], None]
"""Runs a job, and calls the second function in the loop when it is over."""


def inline(job: Callable[[], None], over: Callable[[BaseException | None], None]) -> None:
    """Here and now: for clusters in memory, where nothing is slow and time is virtual."""
    try:
        job()
    except Exception as error:
        over(error)
    else:
        over(None)


def in_thread(job: Callable[[], None], over: Callable[[BaseException | None], None]) -> None:
    """In a thread of the loop's."""
    future = asyncio.get_running_loop().run_in_executor(None, job)
    future.add_done_callback(lambda done: None if done.cancelled() else over(done.exception()))


class Job(NamedTuple):
    """Something to write, in the thread, and what follows it, in the loop."""

    write: Callable[[], None]
    slow: bool
    sync: bool
    then: Callable[[], None]


def nothing() -> None:
    """For a job that only has to come after the others, or that nobody waits for."""


class Scribe:
    """The journal of one member. While `busy`, the journal belongs to the thread."""

    def __init__(self, journal: Journal, failed: Callable[[Exception], None], run: RunJob = inline) -> None:
        self._journal = journal
        self._failed = failed
        self._run = run
        self._running: Sequence[Job] = ()
        self._queue: list[Job] = []
        self._put_jobs = self._done_jobs = 0
        self.broken = False
        """A write has failed: nothing more is written."""
        self._progress = Signal()
        self._asked_at: int | None = None
        self._done_then = 0
        self._still = False

    @property
    def busy(self) -> bool:
        """Something is being written."""
        return bool(self._running)

    @property
    def waiting(self) -> int:
        """Jobs that are not written yet."""
        return len(self._running) + len(self._queue)

    @property
    def state_due(self) -> bool:
        """The log has grown so much that the application's state is worth writing."""
        return not self.busy and self._journal.grown > max(SAVE_BYTES, self._journal.first)

    def save(
        self,
        checkpoint: bytes,
        delivered: Sequence[Deliver],
        arrived: Sequence[AnyFrame],
        installed: bytes | None,
        sync: bool,
        then: Callable[[], None],
    ) -> None:
        """What a step has delivered, what is new in the recovery buffer, and the member after it; `installed`: the
        application's new state."""

        def write() -> None:
            if installed is not None:
                self._journal.processed(0, installed)
            self._journal.save(checkpoint, delivered, arrived, sync=False)

        self._put(Job(write, sync or installed is not None, sync, then))

    def after(self, then: Callable[[], None]) -> None:
        """Do this when all that was handed in before is written."""
        self._put(Job(nothing, False, False, then))

    def processed(self, events: int, state: bytes | None = None) -> None:
        """The application is done with so many more events; `state`: the application's with all of them in it."""
        self._put(Job(lambda: self._journal.processed(events, state), state is not None, False, nothing))

    def sync(self) -> None:
        """The disk is to have all that was handed in before."""
        self._put(Job(nothing, True, True, nothing))

    def watch(self, now: int) -> None:
        """Say that the disk stands still, once, and that it writes again. To be called now and then."""
        if not self._running or self._asked_at is None or self._done_jobs != self._done_then:
            if self._still:
                log.warning("%s: the disk writes again", self._journal.directory)
            self._asked_at, self._done_then, self._still = now, self._done_jobs, False
        elif not self._still and now - self._asked_at > STILL_NS:
            self._still = True
            log.warning(
                "%s: the disk has written nothing for %d s. What is published here waits for it, and so do the votes "
                "of this member: others may wait for those",
                self._journal.directory,
                (now - self._asked_at) // 10**9,
            )

    async def settled(self) -> None:
        """Wait until all that was handed in before is written, or never will be."""
        wanted = self._put_jobs
        while self._done_jobs < wanted and not self.broken:
            await self._progress.wait()

    def _put(self, job: Job) -> None:
        if self.broken:
            return
        self._put_jobs += 1
        if self._running:
            self._queue.append(job)
        else:
            self._start([job], inline if not job.slow and not self._journal.rotates else self._run)

    def _start(self, jobs: Sequence[Job], run: RunJob) -> None:
        self._running = jobs
        run(lambda: self._write(jobs), self._over)

    def _write(self, jobs: Sequence[Job]) -> None:
        """In the thread."""
        for job in jobs:
            job.write()
        if any(job.sync for job in jobs):
            self._journal.sync()

    def _over(self, error: BaseException | None) -> None:
        """In the loop, when these jobs are written."""
        if error is not None:
            self.broken, self._running, self._queue = True, (), []
            self._failed(error if isinstance(error, Exception) else RuntimeError(repr(error)))
            self._progress.tell()
            return
        for job in self._running:
            job.then()
        self._done_jobs += len(self._running)
        waiting, self._queue = self._queue, []
        if waiting:
            self._start(waiting, self._run)
        else:
            self._running = ()
        self._progress.tell()
