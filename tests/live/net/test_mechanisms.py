"""Mechanisms of the survey, live: the same member, in memory (losses: tests/lab/sim/test_mechanisms.py)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import whence
from tests.live.net.live import assert_causal, collect, fast, say, several
from whence.audit.judge import judge
from whence.audit.trace import MemoryTrace
from whence.core.order import MECHANISMS, SurveyConfig
from whence.errors import UsageError
from whence.testing import MemoryNetwork

PATIENT = {"time_to_recover": 400.0}
"""Nothing is given up, however slow the machine is."""
TIMES = SurveyConfig(delay=1_000_000_000, lifetime=60_000_000_000)
"""Of those that go by clocks: what `physical` waits for everything, and `delta` at most."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_question_and_its_answers_among_three(mechanism: str) -> None:
    trace = MemoryTrace()
    settings = fast(mechanism=mechanism, survey=TIMES, **PATIENT)
    common = {"transport": MemoryNetwork(), "settings": settings, "trace": trace}
    async with several("m", 3, **common) as (a, b, c):
        assert a.may_publish and a.coordinators() == {} and a.clock is None and a.order == "causal"
        first = await say(a, b"question")
        [seen] = await collect(b, 1)
        assert (seen.id, seen.payload, seen.origin) == (first, b"question", a.me)
        second = await say(b, b"answer")
        for cluster in (a, c):
            assert [e.id for e in await collect(cluster, 2)] == [first, second]
        await asyncio.gather(*(say(x, *(b"%d" % i for i in range(20))) for x in (a, b, c)))
        for cluster in (a, b, c):
            await collect(cluster, 60 + (cluster is b))
        assert str(a.why_blocked(first)).endswith("delivered")
    assert_causal(trace)
    report = judge(trace.rows)
    assert report.total.inverted == report.total.lost == 0 and report.published == 62


async def test_a_member_goes_on_from_its_directory(tmp_path: Path) -> None:
    """As another process with the state of the first; here of a mechanism that shares something out."""
    net, trace = MemoryNetwork(), MemoryTrace()
    common = {"transport": net, "settings": fast(mechanism="interval"), "trace": trace}
    async with whence.create("m", **common) as a:
        async with whence.join("m", [a.address], directory=tmp_path, **common) as b:
            await say(b, b"one")
            await collect(a, 1)
            await collect(b, 1)
        async with whence.join("m", [a.address], directory=tmp_path, **common) as b:
            await say(a, b"two")
            assert [e.payload for e in await collect(b, 1)] == [b"two"]
            await say(b, b"three")
            assert [e.payload for e in await collect(a, 2)] == [b"two", b"three"]
    with pytest.raises(UsageError, match="cluster with interval"):
        async with whence.create("m", directory=tmp_path, transport=net, settings=fast(mechanism="vector")):
            pass
