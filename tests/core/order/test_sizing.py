"""Theorems 5.1 and 5.2 against simulation: the measured probability is at least the bound."""

from __future__ import annotations

import math
import random

import pytest

from tests.core.order.net import config
from whence.core.clock import NEVER, Frame, Incarnation, Send
from whence.core.order import OrderContext, TicketOrdering
from whence.core.order.messages import AckRecover, Recover
from whence.core.order.recovery import RecoveryBuffer
from whence.core.order.sizing import (
    buffer_probability,
    buffer_size,
    needed_rounds,
    recovery_fanout,
    reply_probability,
)
from whence.errors import ConfigError

INC = Incarnation(1, 0, 1).packed


def frame(ticket: int, seq: int, tickets: int) -> Frame:
    deps = [NEVER] * tickets
    if seq > 1:
        deps[ticket] = (INC, seq - 1)
    return Frame.of(ticket, INC, seq, f"p{ticket}#1", tuple(deps), [b""])


@pytest.mark.parametrize(
    ("n", "p", "rounds"), [(25, 0.02, 20), (25, 0.1, 10), (5, 0.2, 12), (100, 0.01, 30), (8, 0.5, 20)]
)
def test_theorem_5_1_buffer_holds_a_needed_event(n: int, p: float, rounds: int) -> None:
    """`|B| = 2npT`: the probability that an event is still in the real buffer after T rounds of n senders
    publishing with probability p is above `1 - (e/4)^(npT)`."""
    rng = random.Random(f"{n}/{p}/{rounds}")
    size = buffer_size([p] * n, rounds)
    bound = buffer_probability([p] * n, rounds)
    runs, kept = 2000, 0
    seqs = [0] * n
    for _ in range(runs):
        buffer = RecoveryBuffer(size, 1 << 30)
        wanted = frame(0, 10**6, n)
        buffer.add(wanted.key, wanted)
        for _ in range(rounds):
            for sender in range(n):
                if rng.random() < p:
                    seqs[sender] += 1
                    f = frame(sender, seqs[sender], n)
                    buffer.add(f.key, f)
        kept += wanted.key in buffer
    error = 3 * math.sqrt(bound * (1 - bound) / runs)
    assert kept / runs >= bound - error
    assert len(buffer) <= size


def test_theorem_5_1_is_not_vacuous() -> None:
    """A buffer of half the size, npT, loses the event about half of the time: the test above can fail."""
    rng = random.Random(7)
    n, p, rounds = 25, 0.1, 10
    lost = 0
    for _ in range(300):
        buffer = RecoveryBuffer(int(n * p * rounds), 1 << 30)
        wanted = frame(0, 10**6, n)
        buffer.add(wanted.key, wanted)
        seq = 0
        for _ in range(rounds * n):
            if rng.random() < p:
                seq += 1
                f = frame(1, seq, n)
                buffer.add(f.key, f)
        lost += wanted.key not in buffer
    assert lost > 60


@pytest.mark.parametrize(("n", "failure"), [(20, 0.1), (40, 0.1), (50, 0.05), (30, 0.2)])
def test_theorem_5_2_asking_k_finds_a_living_holder(n: int, failure: float) -> None:
    """Each of n processes has failed with probability p_f; `k = 2 n p_f` are asked. Real order layers answer."""
    k = recovery_fanout(n, failure)
    bound = reply_probability(n, failure)
    rng = random.Random(f"{n}/{failure}")
    event = frame(0, 1, 2)
    holders = []
    for i in range(n):
        o = TicketOrdering(
            OrderContext(f"p{i}#1", config("causal", 2), random.Random(i), members=list, sample=lambda k: [])
        )
        o.begin(0)
        o.receive(event, "p0#1", 1, 0)
        holders.append(o)
    runs, answered = 1000, 0
    for _ in range(runs):
        living = [rng.random() >= failure for _ in range(n)]
        for i in rng.sample(range(n), k):
            if living[i]:
                (send,) = holders[i].on_recover("me#1", Recover(1, ((0, INC, 1, 1),)))
                assert isinstance(send, Send) and isinstance(send.message, AckRecover)
                if send.message.frames == (event,):
                    answered += 1
                    break
    assert answered / runs >= bound - 3 * math.sqrt(bound * (1 - bound) / runs)


def test_formulas() -> None:
    assert needed_rounds(5, 5, 5) == 20
    assert buffer_size([0.1] * 25, 20) == 100
    assert buffer_size([0.5, 0.25], 10) == 15  # the general form: 2 mu T
    assert buffer_probability([0.1] * 25, 20) == pytest.approx(1 - (math.e / 4) ** 50)
    assert recovery_fanout(100, 0.02) == 4
    with pytest.raises(ConfigError):
        buffer_size([-1], 3)
    with pytest.raises(ConfigError):
        recovery_fanout(10, 1.5)
