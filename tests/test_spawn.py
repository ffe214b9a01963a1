"""A task that starts a process can be cancelled at any time: it ends, and so does the process."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

import pytest

from whence.spawn import spawn


@pytest.mark.parametrize("turns", range(12))
def test_cancelled_after_so_many_turns_of_the_loop(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    plain = asyncio.create_subprocess_exec

    async def noted(*command: str, **how: int) -> Process:
        started.append(process := await plain(*command, **how))
        return process

    async def main() -> None:
        task = asyncio.create_task(spawn(sys.executable, "-c", "input()", stdin=PIPE, stdout=PIPE))
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=60)
        assert done, "it hangs"
        if not task.cancelled():  # it was ready before
            started[0].kill()
            await started[0].wait()

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    asyncio.run(main())
    assert all(process.returncode is not None for process in started)


def test_what_cannot_be_started_is_told() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(spawn("no-such-program"))
