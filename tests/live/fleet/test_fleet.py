"""A cluster of processes: killed, cut, healed, collected, and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

import whence
from whence.audit.judge import judge
from whence.errors import FleetError
from whence.live.fleet.fleet import Fleet, Look, Members
from whence.live.fleet.process import RUN
from whence.live.fleet.task import MemberSpec, PlanStep, Task

MS = 1_000_000
SHORT = {"ring_k": 2, "ring_round_ns": 800 * MS, "delta_ns": 300 * MS, "round_ns": 50 * MS, "time_to_recover": 60.0}
"""Shorter than usual; but a machine that stops a process for a second must cost nobody a ticket."""
LIMIT_S = 120.0


def three(home: Path, rate: float = 20.0) -> Fleet:
    fleet = Fleet(home, traced=home / "trace")
    for n in range(3):
        spec = MemberSpec(order="reliable", directory=str(home / f"disk{n}"), rate=rate)
        fleet.member(Task(cluster="three", members=[spec], settings=SHORT, drop=0.05))
    return fleet


def sees(*members: int) -> Callable[[list[Look]], bool]:
    return lambda looks: [look["members"] for look in looks] == list(members)


def test_cut_and_heal_really_do_and_the_traces_are_collected(tmp_path: Path) -> None:
    """One of three is cut off: each side forgets the other and delivers nothing from it. Healed, all agree."""

    async def main() -> Fleet:
        async with three(tmp_path) as fleet:
            await fleet.start()
            await fleet.until("all here", sees(3, 3, 3), LIMIT_S)
            await fleet.until("tickets", lambda looks: all(k["ticket"] is not None for k in looks), LIMIT_S)
            await fleet.run([PlanStep(0.0, "cut", (2,))])
            await fleet.until("apart", sees(2, 2, 1), LIMIT_S)
            before = await fleet.looks()

            def goes_on(looks: list[Look]) -> bool:
                return all(looks[n]["delivered"] > before[n]["delivered"] + 20 for n in (0, 1))

            apart = await fleet.until("the majority goes on", goes_on, LIMIT_S)
            assert apart[0]["clock"] != apart[2]["clock"]
            await fleet.run([PlanStep(0.0, "heal")])
            await fleet.until("one cluster again", sees(3, 3, 3), LIMIT_S)
            await fleet.ask("hush")
            still, looks = await fleet.quiet()
            assert still and len({look["clock"] for look in looks}) == 1
            await fleet.kill()
            return fleet

    fleet = whence.run(main())
    rows, half = fleet.rows()
    assert {row.run for row in rows} == {RUN}
    report = judge(rows)
    assert report.ok and report.published > 50, report
    assert {row.member for row in rows} == set(fleet.killed()) and half == 0
    assert sum(row.kind == "fault" for row in rows) >= 6, "each was told of the cut and of its end"


def test_members_that_find_nobody_are_named(tmp_path: Path) -> None:
    async def main() -> None:
        async with Fleet(tmp_path) as fleet:
            lonely = fleet.member(Task(cluster="nobody", members=[MemberSpec()], timeout=0.5))
            with pytest.raises(FleetError, match=r"process 0 cannot go on: no contact of 'nobody' within 0.5 s"):
                await lonely.join(["127.0.0.1:9"])
            with pytest.raises(FleetError, match="this fleet has no traces"):
                fleet.rows()

    whence.run(main())


@pytest.mark.parametrize("what", ["trace", "directory", "seen", "trace and directory"])
def test_a_full_disk_ends_a_member_with_one_line(what: str, tmp_path: Path) -> None:
    """Whatever is written to it. The others are not waited for: what counts is which process ended, and why."""
    spec = MemberSpec(rate=200.0)
    if "directory" in what:
        spec.directory = str(tmp_path / "disk")
    if "seen" in what:
        spec.seen = str(tmp_path / "seen")
    trace = str(tmp_path / "trace") if "trace" in what else None

    async def main() -> None:
        async with Fleet(tmp_path) as fleet:
            task = Task(cluster="full", members=[spec], secret=fleet.secret, trace=trace)
            little = ["sh", "-c", 'ulimit -f 16; exec "$0" "$@"']
            one = fleet.add(Members(0, task, "whence.live.fleet.member"))
            one.command = [*little, *one.command]
            fleet.member(Task(cluster="full", members=[MemberSpec()]))
            await fleet.start()
            await fleet.together([asyncio.sleep(LIMIT_S)])

    with pytest.raises(FleetError, match=r"^process 0 cannot go on: [^\n]*File too large[^\n]*$"):
        whence.run(main())
