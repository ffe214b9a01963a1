"""Supervised processes: whatever they do, the fleet knows it, says it, and leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.fleet.child import Task
from tests.long import few
from whence.errors import FleetError
from whence.live.fleet.process import Child, Children

ROOT = Path(__file__).parents[3]
PATIENCE_S = 120.0


def child(name: str = "carol") -> Child:
    return Child(name, "tests.live.fleet.child", cwd=ROOT)


def run(work: Callable[[Children[Child]], Coroutine[Any, Any, None]]) -> None:
    """The test's own work, with a group of processes that has to be gone afterwards."""

    async def main() -> list[int]:
        async with Children[Child](stop_s=3.0) as group:
            try:
                await work(group)
            finally:
                pids = [p.pid for p in group.all if p.pid is not None]
        return pids

    assert not [pid for pid in whence.run(main()) if alive(pid)]


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(alive, pids))


def test_a_process_killed_with_9_is_seen_as_such() -> None:
    async def work(group: Children[Child]) -> None:
        carol = group.add(child())
        await carol.start(Task("well"))
        await carol.ask("say", text="about to write the journal")
        assert carol.pid is not None
        os.kill(carol.pid, signal.SIGKILL)
        with pytest.raises(FleetError, match=r"(?s)^carol was ended by SIGKILL.*\nabout to write the journal$"):
            await carol.ask("slow", seconds=0, value="x")
        assert not carol.alive and carol.pid is None
        await carol.start(Task("well"))
        assert carol.starts == 2 and await carol.ask("slow", seconds=0, value="again") == "again"

    run(work)


@pytest.mark.parametrize(
    ("seconds", "last"), few([(0.1, ""), (30.0, r".*\nwaiting for a server that is not there$")], 1)
)
def test_one_that_does_not_become_ready_is_named_with_its_last_lines(seconds: float, last: str) -> None:
    """If it has said something by then: that takes as long as Python takes to start."""

    async def work(group: Children[Child]) -> None:
        expected = rf"(?s)carol \(pid \d+\) did not become ready within {seconds:g} s" + last
        with pytest.raises(FleetError, match=expected):
            await group.add(child()).start(Task("never ready"), timeout=seconds)

    run(work)


def test_one_that_cannot_start_says_why_in_a_line() -> None:
    async def work(group: Children[Child]) -> None:
        expected = r"^carol cannot go on: disk/journal: no space left on device$"
        with pytest.raises(FleetError, match=expected):
            await group.add(child()).start(Task("fails"))
        later = group.add(child())
        await later.start(Task("well"))
        with pytest.raises(FleetError, match=expected):
            await later.ask("broken")
        with pytest.raises(
            FleetError, match=r"(?s)carol ended with exit code 1.*No module named tests.live.fleet.nobody"
        ):
            await group.add(Child("carol", "tests.live.fleet.nobody", cwd=ROOT)).start(Task("well"))

    run(work)


def test_an_answer_that_comes_late_is_not_taken_for_the_next_one() -> None:
    async def work(group: Children[Child]) -> None:
        carol = group.add(child())
        await carol.start(Task("well"))
        with pytest.raises(FleetError, match=r"did not answer 'slow' within 0.05 s"):
            await carol.ask("slow", timeout=0.05, seconds=0.5, value="late")
        assert await carol.ask("slow", seconds=0, value="next") == "next"

    run(work)


def test_one_that_is_stuck_is_killed_at_the_stop() -> None:
    async def work(group: Children[Child]) -> None:
        carol, dave = group.add(child()), group.add(child("dave"))
        await carol.start(Task("stuck"))
        await dave.start(Task("well"))
        assert not await carol.stop(timeout=0.5) and await dave.stop()
        assert carol.ending == "was ended by SIGKILL" and dave.ending == "ended with exit code 0"

    run(work)


def test_what_a_process_has_started_dies_with_it() -> None:
    async def work(group: Children[Child]) -> None:
        carol = group.add(child())
        grandchild = await carol.start(Task("grandchild"))
        assert alive(grandchild)
        await carol.kill()
        assert gone([grandchild])

    run(work)


def test_the_death_of_one_ends_what_the_others_are_waited_for() -> None:
    pids: list[int] = []

    async def work(group: Children[Child]) -> None:
        for name in ("carol", "dave", "erin"):
            await group.add(child(name)).start(Task("well"))
        pids.extend(p.pid for p in group.all if p.pid)
        os.kill(pids[1], signal.SIGKILL)
        await group.ask("slow", seconds=600, value="x")

    with pytest.raises(FleetError, match="dave was ended by SIGKILL"):
        run(work)
    assert len(pids) == 3 and gone(pids)


@pytest.mark.parametrize("interrupts", [1, 2])
def test_ctrl_c_leaves_no_process_behind(interrupts: int) -> None:
    """Also not what a child has started, and not one that is stuck; a second Ctrl-C does not wait for it."""
    command = [sys.executable, "-m", "tests.live.fleet.parent", "well", "grandchild", "stuck"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        lines = [parent.stdout.readline() for _ in range(4)]
        assert lines[-1] == "ready\n", lines
        pids = [int(word) for line in lines[:-1] for word in line.split()]
        assert len(pids) == 4 and all(map(alive, pids))
        for _ in range(interrupts):
            parent.send_signal(signal.SIGINT)
            assert gone(pids[:1]), "the first is told at once"
        parent.wait(PATIENCE_S)
        assert gone(pids)


def test_a_parent_that_is_killed_leaves_none_behind_either() -> None:
    command = [sys.executable, "-m", "tests.live.fleet.parent", "well", "well"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        parent.wait(PATIENCE_S)
        assert gone(pids)


def test_a_running_process_is_not_started_twice() -> None:
    async def work(group: Children[Child]) -> None:
        carol = group.add(child())
        await carol.start(Task("well"))
        with pytest.raises(FleetError, match="carol is running already"):
            await carol.start(Task("well"))
        with pytest.raises(FleetError, match="dave was never started"):
            await child("dave").ask("slow", seconds=0, value="x")
        await asyncio.gather(*(carol.ask("slow", seconds=0.01, value=str(i)) for i in range(5)))

    run(work)
