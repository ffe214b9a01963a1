"""The convoy effect: vector clocks hold back and forward in bursts along a chain, the first generation does not."""

from __future__ import annotations

from dataclasses import replace

from whence.lab.paper.survey.convoy import ConvoySetting, simulate
from whence.lab.stats import quantile

SMALL = ConvoySetting("vector", subgroups=5, size=3, rate=150, loss=0.02, seconds=1.5)


def test_a_lost_message_delays_all_that_follow_it_down_the_chain() -> None:
    vector, first, unstable = (simulate(replace(SMALL, order=order)) for order in ("vector", "first", "first-unstable"))
    assert len(vector.latency[4]) == len(first.latency[4]) == len(unstable.latency[4]) > 0  # the same, and none lost
    assert vector.mean(4) > 3 * vector.mean(0)  # it grows along the chain
    assert vector.mean(4) > 1.5 * first.mean(4)  # the first generation of Fig. 3 still waits for FIFO order
    assert first.mean(4) > 3 * unstable.mean(4)
    assert unstable.mean(4) < 5 * 3 * SMALL.delay and max(map(unstable.together, range(5))) < 1.3  # no convoy
    assert quantile(sorted(vector.latency[4]), 0.9) > 5 * quantile(sorted(unstable.latency[4]), 0.9)


def test_without_loss_there_is_no_convoy() -> None:
    vector, first = (simulate(replace(SMALL, order=order, loss=0.0)) for order in ("vector", "first"))
    assert vector.mean(4) < 25 and first.mean(4) < 25
    assert max(map(vector.together, range(5))) < 1.5
