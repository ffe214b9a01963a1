"""The switch of the scorecard never reorders a link, whatever is delayed, held, cut and healed meanwhile."""

from __future__ import annotations

import random

import pytest
from scorecard.switch import PLACES, Wires

LINKS = [(a, b) for a in PLACES for b in PLACES if a != b]


def command(rng: random.Random) -> str:
    a, b = rng.choice([*PLACES, "*"]), rng.choice([*PLACES, "*"])
    ms = rng.choice([0, 1, 20, 500])
    return rng.choice(["heal", f"cut {a} {b}", f"hold {a} {b}", f"delay {a} {b} {ms}", f"jitter {a} {b} {ms}"])


@pytest.mark.parametrize("seed", range(20))
def test_no_link_is_ever_reordered(seed: int) -> None:
    rng = random.Random(seed)
    wires, now, sent, got = Wires(random.Random(seed)), 0.0, 0, []
    for _ in range(2000):
        now += rng.choice([0.0, 0.0001, 0.01, 0.3])
        if rng.random() < 0.05:
            wires.command(command(rng))
        for _ in range(rng.randrange(3)):
            src, dst = rng.choice(LINKS)
            sent += 1
            wires.take(now, (src, dst), f"{src} {dst} {sent}".encode())
        got += wires.due(now)
    wires.command("heal")
    got += wires.due(now + 10)
    numbers: dict[tuple[str, str], list[int]] = {}
    for to, packet in got:
        src, dst, number = packet.decode().split()
        assert to == dst
        numbers.setdefault((src, dst), []).append(int(number))
    assert set(numbers) == set(LINKS) and all(each == sorted(each) for each in numbers.values())
    assert wires.passed == len(got) and wires.passed + wires.dropped == sent and wires.dropped


def test_a_delay_is_kept_also_when_it_is_taken_back() -> None:
    wires, link = Wires(random.Random(1)), ("a", "c")
    wires.command("delay a c 50")
    wires.take(0.0, link, b"slow")
    wires.command("heal")
    wires.take(0.01, link, b"fast")
    assert wires.due(0.04) == [] and wires.wait(0.04) == pytest.approx(0.01)
    assert wires.due(0.05) == [("c", b"slow"), ("c", b"fast")]


def test_what_is_held_leaves_when_it_is_healed() -> None:
    wires = Wires(random.Random(1))
    wires.command("hold a c")
    wires.take(0.0, ("a", "c"), b"question")
    wires.take(0.0, ("b", "c"), b"answer")
    assert wires.due(100.0) == [("c", b"answer")]
    wires.command("heal")
    assert wires.due(100.0) == [("c", b"question")]
    with pytest.raises(ValueError, match="no command"):
        wires.command("reorder a c")
