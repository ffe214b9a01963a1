"""The live soaks, short: kills, a partition, an editing trace; and what a killed process's trace must say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from soak import editing

import whence
from tests.live.net.live import collect, fast, run, until
from whence.audit.judge import judge
from whence.audit.trace import read
from whence.live.net.disk import Journal

SECRET = b"\x05" * 32


class Killed(Exception):
    """Stands for SIGKILL in the middle of a write: that write never returns."""


def test_a_kill_between_trace_and_journal_is_no_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace tells of a delivery that is not in the journal: it is delivered again, and that is no duplicate."""

    async def main() -> None:
        common: dict[str, Any] = {
            "secret": SECRET,
            "order": "reliable",
            "trace": tmp_path / "trace",
            "settings": fast(),
        }
        async with whence.create("live", **common) as a, a.publisher() as seat:
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
                await until(lambda: b._node.closed, "killed")
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


def test_two_authors_and_watchers_end_with_the_text(tmp_path: Path) -> None:
    """A recording made here: both append to a common beginning at the same time, one before it and one after it."""
    pytest.importorskip("pycrdt")
    txns: list[dict[str, Any]] = [{"parents": [], "agent": 0, "patches": [[0, 0, "-"]]}]
    for n in range(100):
        txns.append({"parents": [max(0, 2 * n - 1)], "agent": 0, "patches": [[0, 0, chr(ord("a") + n % 26)]]})
        txns.append({"parents": [2 * n if n else 0], "agent": 1, "patches": [[n + 1, 0, str(n % 10)]]})
    letters = "".join(chr(ord("a") + n % 26) for n in range(100))
    final = letters[::-1] + "-" + "".join(str(n % 10) for n in range(100))
    path = tmp_path / "recording.json"
    path.write_text(json.dumps({"kind": "concurrent", "endContent": final, "numAgents": 2, "txns": txns}))
    result = whence.run(editing.soak(path, tmp_path, watchers=1, drop=0.2))
    assert result["ok"] and result["all_end_with_the_recorded_text"], result
    assert result["members"] == 3 and result["transactions"] == 201
