"""A machine that sleeps: leases go on running."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest

import whence
from tests.live.net.live import fast, until
from whence.live.net.host import boot_ns
from whence.live.net.memory import MemoryNetwork


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts suspension")
def test_the_clock_of_leases_counts_suspension() -> None:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert before <= boot_ns() <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="this system has no clock that counts suspension")
async def test_who_slept_longer_than_its_lease_has_no_ticket_when_it_wakes(caplog: pytest.LogCaptureFixture) -> None:
    """`time.monotonic` stands still while the machine sleeps, and so do the timers of the event loop."""
    net = MemoryNetwork()
    async with (
        whence.create("live", "a:1", transport=net, settings=fast()) as a,
        whence.join("live", ["a:1"], "b:1", transport=net, settings=fast()) as b,
        whence.join("live", ["a:1"], "c:1", transport=net, settings=fast()) as c,
        a.publisher() as one,
        b.publisher() as two,
        c.publisher() as three,
    ):
        for publisher in (one, two, three):
            await publisher.ready()
        assert "is lost" not in caplog.text
        awake = time.clock_gettime_ns
        # Undone before the virtual clock is: `monkeypatch` would put that clock back for all later tests.
        with patch("time.clock_gettime_ns", lambda clock: awake(clock) + 3_600 * 10**9):
            # The log, not a member's last word: the first to wake may have a ticket again when the last one wakes.
            await until(lambda: caplog.text.count("is lost (lease ran out)") >= 3, "they know it")
