"""The run id of a live cluster: one for all its members, another for each founding (`live/net/hello.py`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import collect, fast, run, say
from whence.audit.judge import judge
from whence.audit.trace import Row, read
from whence.errors import BadMessage, UsageError
from whence.live.net.hello import Answer, decode_hello, encode_hello
from whence.testing import MemoryNetwork


@pytest.fixture(autouse=True)
def no_run_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHENCE_RUN", raising=False)


async def _three(traces: Path, **founder: Any) -> None:
    """A founder and two that join through it; the last joins through the second."""
    net = MemoryNetwork()
    common: dict[str, Any] = {"transport": net, "settings": fast(), "trace": traces}
    async with (
        whence.create("room", "a:1", **common, **founder) as a,
        whence.join("room", ["a:1"], "b:1", **common) as b,
        whence.join("room", ["b:1"], "c:1", **common) as c,
    ):
        await say(a, b"hello")
        for cluster in (a, b, c):
            await collect(cluster, 1)


def _by_run(traces: Path) -> dict[str, list[Row]]:
    runs: dict[str, list[Row]] = {}
    for row in read(traces):
        runs.setdefault(row.run, []).append(row)
    return runs


def test_members_share_a_run_and_foundings_do_not(tmp_path: Path) -> None:
    for founded in (1, 2, 3):
        run(_three(tmp_path))
        runs = _by_run(tmp_path)
        assert len(runs) == founded
    for rows in runs.values():
        assert {row.member.split("#")[0] for row in rows} == {"a:1", "b:1", "c:1"}
        assert len({row.member for row in rows}) == 3
        report = judge(rows)
        assert report.ok and report.published == 1


def test_a_directory_goes_on_with_its_run(tmp_path: Path) -> None:
    """A founder that resumes from its checkpoint does; one whose directory is new founds another."""
    for directory, founded in (("one", 1), ("one", 1), ("two", 2)):
        run(_three(tmp_path / "traces", directory=tmp_path / directory))
        assert len(_by_run(tmp_path / "traces")) == founded


def test_a_member_that_restarts_alone_goes_on_with_the_run_it_joined(tmp_path: Path) -> None:
    async def main() -> None:
        net = MemoryNetwork()
        common: dict[str, Any] = {"transport": net, "settings": fast(), "trace": tmp_path / "traces"}
        again = {**common, "directory": tmp_path / "b"}
        async with whence.create("room", "a:1", **common) as a, whence.join("room", ["a:1"], "b:1", **again) as b:
            await say(a, b"hello")
            await collect(b, 1)
        async with whence.join("room", ["a:1"], "b:1", **again):
            pass

    run(main())
    [rows] = _by_run(tmp_path / "traces").values()
    assert len({row.member for row in rows}) == 3


def test_joiners_learn_the_run_that_the_environment_gave_the_founder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        common: dict[str, Any] = {"transport": MemoryNetwork(), "settings": fast(), "trace": tmp_path}
        monkeypatch.setenv("WHENCE_RUN", "tuesday")
        async with whence.create("room", "a:1", **common):
            monkeypatch.delenv("WHENCE_RUN")
            async with whence.join("room", ["a:1"], "b:1", **common):
                pass

    run(main())
    [(name, rows)] = _by_run(tmp_path).items()
    assert name == "tuesday" and len({row.member for row in rows}) == 2


@pytest.mark.parametrize("bad", ["two words", "x" * 65, "t\u00fcesday"])
def test_a_run_that_cannot_travel_is_refused(bad: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHENCE_RUN", bad)

    async def main() -> None:
        async with whence.create("room", "a:1", transport=MemoryNetwork(), settings=fast()):
            pass

    with pytest.raises(UsageError, match="WHENCE_RUN must be 1 to 64"):
        run(main())
    with pytest.raises(BadMessage, match="not a run id"):
        decode_hello(encode_hello(Answer("room", 1, "a:1#1", run=bad)))
