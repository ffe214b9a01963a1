"""Everything in processes of its own: two clusters of three members, a bridge that is killed under load, and two people
outside who talk through members' doors."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path

from tests.cli.commands import LIMIT, Command
from tests.live.net.live import until as soon
from tests.ports import free_ports
from whence.live.bridge import Client

QUESTIONS = 60


def payloads(door: Command) -> list[str]:
    return [json.loads(line)["payload"] for line in list(door.out)]


def cluster(start: Callable[..., Command], name: str) -> tuple[list[Command], list[str], str]:
    """Three members with doors and tickets; where the doors are; a seed."""
    who = (
        "node",
        "--open",
        "127.0.0.1:0",
        "--cluster",
        name,
        "--insecure",
        "--json",
        "--order",
        "reliable",
        "--timeout",
        LIMIT,
    )
    doors = [start(*who)]
    seed = json.loads(doors[0].notice(r".*has (created|joined) .*")[0])["address"]
    doors += [start(*who, "--contact", seed) for _ in range(2)]
    for door in doors:
        door.notice("may publish")  # of three coordinators one may crash, of two none
    return doors, [json.loads(door.notice(r".*has (created|joined) .*")[0])["open"] for door in doors], seed


def test_questions_and_answers_across_a_bridge_that_is_killed(tmp_path: Path, start: Callable[..., Command]) -> None:
    lobby, lobby_doors, lobby_seed = cluster(start, "lobby")
    hall, hall_doors, hall_seed = cluster(start, "hall")
    sides = [
        (side, name, "--contact", seed, "--listen", f"127.0.0.1:{free_ports(1)[0]}", "--insecure", "--timeout", LIMIT)
        for side, name, seed in (("--cluster", "lobby", lobby_seed), ("--cluster", "hall", hall_seed))
    ]
    args = ("bridge", "--directory", tmp_path / "bridge", "--probe", 0.3, *sides[0], *sides[1])
    bridge = start(*args)
    bridge.notice("is open")

    async def ann() -> None:
        async with Client("lobby", lobby_doors, insecure=True, client="ann", timeout=LIMIT) as client:
            for n in range(QUESTIONS):
                await client.publish(b"question %d" % n, everywhere=True)
                await client.publish(b"(between us: %d)" % n)

    async def bob() -> None:
        async with Client("hall", hall_doors, insecure=True, client="bob", timeout=LIMIT) as client:
            for n in range(QUESTIONS):
                # What a client publishes follows what the member behind the door has delivered: any of the three.
                await soon(lambda: all(f"question {n}" in payloads(d) for d in hall), "asked", LIMIT)  # noqa: B023
                await client.publish(b"answer %d" % n, everywhere=True)

    async def killer() -> None:
        nonlocal bridge
        await soon(lambda: "answer 15" in payloads(lobby[0]), "some were answered", LIMIT)
        assert bridge.end(signal.SIGKILL) == -signal.SIGKILL
        bridge = start(*args)

    async def all_of_it() -> None:
        await asyncio.gather(ann(), bob(), killer())
        for door in (*lobby, *hall):
            await soon(lambda: f"answer {QUESTIONS - 1}" in payloads(door), "the last answer", LIMIT)  # noqa: B023

    asyncio.run(all_of_it())
    asked, answers = ([f"{what} {n}" for n in range(QUESTIONS)] for what in ("question", "answer"))
    for door in (*lobby, *hall):
        read = payloads(door)
        assert [text for text in read if text.startswith("question")] == asked, "each once, in order"
        assert [text for text in read if text.startswith("answer")] == answers, "each once, in order"
        assert all(read.index(q) < read.index(a) for q, a in zip(asked, answers, strict=True)), "no answer comes first"
        assert sum(text.startswith("(between us") for text in read) == (QUESTIONS if door in lobby else 0)
    bridge.notice("is open")
    for process in (bridge, *hall, *lobby):
        assert process.end(signal.SIGTERM) == 0, process.err
