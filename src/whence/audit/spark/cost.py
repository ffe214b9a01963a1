"""What a job of Spark does and took: its tasks as progress while it runs, the sums of them at its end."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import SparkSession

EVERY: Final = 5.0
"""Seconds from one word about progress to the next."""


class Cost:
    """Of the jobs that run while this is open. By Spark Connect stages and tasks are not known, and stay 0."""

    def __init__(self, spark: SparkSession, rows: int, progress: Callable[[str], None]) -> None:
        self._spark, self._rows, self._progress = spark, rows, progress
        self._tag = f"whence-{uuid.uuid4().hex}"
        self._begun = time.monotonic()
        self._said = ""

    @property
    def seconds(self) -> float:
        """Since this was opened."""
        return round(time.monotonic() - self._begun, 3)

    def stages(self) -> list[tuple[int, int]]:
        """Tasks of each stage that has begun: all, and those that are done."""
        try:
            tracker = self._spark.sparkContext.statusTracker()
            jobs = [tracker.getJobInfo(job) for job in self._jobs()]
            known = {stage for job in jobs if job is not None for stage in job.stageIds}
            infos = [tracker.getStageInfo(stage) for stage in sorted(known)]
        except Exception:  # Spark Connect has no context; one that is being stopped does not answer
            return []
        counts = [(i.numTasks, i.numCompletedTasks, i.numActiveTasks) for i in infos if i is not None]
        return [(tasks, done) for tasks, done, active in counts if done or active]

    def _jobs(self) -> list[int]:
        return [int(job) for job in self._spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(self._tag)]

    def told(self) -> dict[str, float]:
        """For the manifest."""
        with contextlib.suppress(Exception):  # what has ended is told to the status store a moment later
            self._spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(60_000)
        stages = self.stages()
        return {"seconds": self.seconds, "stages": len(stages), "tasks": sum(tasks for tasks, _ in stages)}

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Count what runs meanwhile, and say how far it is."""
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(over,), name="progress", daemon=True)
        tagged = False
        with contextlib.suppress(Exception):  # Spark Connect
            self._spark.sparkContext.addJobTag(self._tag)
            tagged = True
        teller.start()
        try:
            yield
        finally:
            over.set()
            teller.join(EVERY)  # not for ever: the JVM may have gone
            if tagged:
                with contextlib.suppress(Exception):
                    self._spark.sparkContext.removeJobTag(self._tag)

    def _tell(self, over: threading.Event) -> None:
        while not over.wait(EVERY):
            self.say()

    def say(self) -> None:
        """How far the last stage is, if that is news."""
        stages = self.stages()
        if not stages:
            return
        tasks, done = stages[-1]
        share = done / tasks if tasks else 0.0
        rows = f"about {int(share * self._rows):,} of {self._rows:,} rows"
        said = f"stage {len(stages)}: {done:,} of {tasks:,} tasks, {rows}"
        if said != self._said:
            self._said = said
            self._progress(said)
