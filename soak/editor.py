"""The child program of the editing soak: one member, an author or a reader."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from examples.replay_editing import Reader

from whence.lab.replay import NAME, Author, session
from whence.live.fleet.channel import Channel, program
from whence.live.fleet.member import joined
from whence.live.fleet.task import Task
from whence.live.objects import Objects

LIMIT_S = 240.0


class Editing(Task, kw_only=True):
    """The task of a process: its member is the author with this number, or only reads."""

    path: str
    number: int


async def member(task: Editing, channel: Channel) -> None:
    """Join, and answer requests. On `replay` it writes its part, and replies with the resulting text."""
    recording, objects = session(task.path), Objects()
    async with joined(task, random.Random(task.seed), state=objects.state, restore=objects.restore) as members:
        cluster = members.clusters[0]
        author = Author(recording, task.number, cluster.me) if task.number < len(recording.authors) else None
        reader = Reader(cluster, objects, author)

        async def replay() -> dict[str, Any]:
            await reader.write()
            await reader.has(sum(map(len, recording.authors)), LIMIT_S)
            text, stats = objects.document(NAME).text, cluster.stats()
            return {
                "member": cluster.me,
                "same": text == recording.final,
                "text": hashlib.sha256(text.encode()).hexdigest()[:16],
                "operations": objects.stats.applied,
                "lost_on_purpose": stats["net.lost_on_purpose"],
                "recovered": stats["order.recovered"],
            }

        channel.ready(members.about())
        await channel.serve({**members.commands(), "replay": replay}, reader.read())


if __name__ == "__main__":
    program(member, Editing)
