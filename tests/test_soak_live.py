"""The live soaks, short: kills, a partition, an editing trace; and what a killed process's trace must say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import whence
from live import collect, fast, run, until
from whence.net.disk import Journal
from whence.sim.oracle import judge
from whence.trace import read

SECRET = b"\x05" * 32


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the process runs after it."""


def test_a_kill_between_trace_and_journal_is_no_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace tells of a delivery that is not in the journal: it is delivered again, and that is no duplicate."""

    async def main() -> None:
        common: dict[str, Any] = {
            "secret": SECRET,
            "order": "reliable",
            "trace": tmp_path / "trace",
            "settings": fast(),
        }
        async with whence.join("live", **common) as a, a.coordinate() as seat:
            joining = whence.join("live", [a.address], directory=tmp_path / "b", **common)
            b = await joining.__aenter__()
            await seat.publish(b"1")
            assert [e.payload for e in await collect(b, 1)] == [b"1"]
            whole = Journal.save

            def killed(journal: Journal, *args: Any, **more: Any) -> None:
                if journal.directory == tmp_path / "b":
                    b.abandon()
                    raise Killed
                whole(journal, *args, **more)

            monkeypatch.setattr(Journal, "save", killed)
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
            try:
                await seat.publish(b"2")
                await until(lambda: b._closed, "killed")
            except Killed:
                pass
            monkeypatch.setattr(Journal, "save", whole)
            await joining._close()
            async with whence.join("live", [a.address], b.address, directory=tmp_path / "b", **common) as again:
                assert [e.payload for e in await collect(again, 1)] == [b"2"]

    run(main())
    rows = list(read(tmp_path / "trace"))
    delivered = [r for r in rows if r.kind == "deliver" and r.event and ":2@" in r.event]
    assert len(delivered) == 3, "by a, and by b in both lives"
    report = judge(rows)
    assert report.ok, report
