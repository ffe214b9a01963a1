"""The load and the plan of a fleet: pure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.live.fleet.member import Latency
from whence.live.fleet.task import PAYLOAD_BYTES, Pace, payload, published_at


@given(st.integers(0, 10**19 - 1))
def test_a_payload_tells_when_it_was_published(now: int) -> None:
    assert len(payload(now)) == PAYLOAD_BYTES
    assert published_at(payload(now)) == now


@given(st.binary(max_size=200))
@pytest.mark.parametrize("beginning", [b"", b"whence load ", b"\0load ", b"whence load " + b"9" * 400])
def test_any_other_payload_is_the_applications_own(beginning: bytes, rest: bytes) -> None:
    """A payload is read as part of the load only if it is one, byte for byte."""
    some = beginning + rest
    sent = published_at(some)
    assert sent is None or some == payload(sent)


@pytest.mark.parametrize(("rate", "bursts"), [(5.0, (1,)), (200.0, (1,)), (40.0, (1, 1, 2, 4))])
def test_as_many_events_are_due_as_the_rate_says(rate: float, bursts: tuple[int, ...]) -> None:
    pace, now, events = Pace(rate, random.Random(1), 0.0, bursts), 0.0, 0
    while now < 2000 / rate:
        now += pace.wait(now)
        events += pace.due(now)
    assert 1800 < events < 2200


def test_quantiles_of_latency_are_bounds_of_buckets() -> None:
    latency = Latency()
    assert latency.quantile(0.5) is None
    for seconds in (*[0.0015] * 98, -1.0, 1e9):
        latency.observe(seconds)
    assert latency.quantile(0.5) == latency.quantile(0.99) == 0.002 and latency.quantile(1.0) == float("inf")
