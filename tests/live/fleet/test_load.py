"""The load and the plan of a fleet: pure."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.live.fleet.member import Latency
from whence.live.fleet.task import DOWN_S, PAYLOAD_BYTES, Pace, kills, payload, published_at


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


def test_what_was_held_up_for_long_is_not_made_up_for() -> None:
    pace = Pace(100.0, random.Random(1), 0.0)
    assert 50 < pace.due(3600.0) < 200
    assert pace.due(3600.0) == 0


def test_the_same_seed_gives_the_same_plan_of_kills() -> None:
    plan = list(islice(kills(random.Random(7), 5, 3.0), 200))
    assert plan == list(islice(kills(random.Random(7), 5, 3.0), 200))
    assert plan != list(islice(kills(random.Random(8), 5, 3.0), 200))
    for kill, start in zip(plan[::2], plan[1::2], strict=True):
        assert (kill.do, start.do) == ("kill", "start") and kill.processes == start.processes
        assert 1.5 <= kill.after <= 4.5 and start.after in DOWN_S
    assert {step.processes for step in plan} == {(n,) for n in range(5)}


def test_quantiles_of_latency_are_bounds_of_buckets() -> None:
    latency = Latency()
    assert latency.quantile(0.5) is None
    for seconds in (*[0.0015] * 98, -1.0, 1e9):
        latency.observe(seconds)
    assert latency.quantile(0.5) == latency.quantile(0.99) == 0.002 and latency.quantile(1.0) == float("inf")
