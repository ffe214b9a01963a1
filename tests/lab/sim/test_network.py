"""The network model: each property by itself, and randomness that does not shift."""

from __future__ import annotations

from pathlib import Path

import pytest

from whence.errors import ConfigError
from whence.lab.latencies import CITIES, read_matrix
from whence.lab.sim.host import LocalClock
from whence.lab.sim.network import SimNetwork
from whence.lab.sim.scenario import NetworkSettings as Settings

MS = 10**6
NAMES = ("a", "b", "c")


def arrivals(network: SimNetwork, count: int = 20_000, src: str = "a", dst: str = "b") -> list[tuple[int, ...]]:
    """The delays of datagrams sent 1 ms apart."""
    return [tuple(at - i * MS for at in network.datagram(i * MS, src, dst, 100)) for i in range(count)]


def test_normal_latency_has_the_mean_and_deviation_it_says() -> None:
    delays = [d for (d,) in arrivals(SimNetwork(Settings(latency="normal", mean=100 * MS, sd=20 * MS), NAMES, 1))]
    mean = sum(delays) / len(delays)
    sd = (sum((d - mean) ** 2 for d in delays) / len(delays)) ** 0.5
    assert mean == pytest.approx(100 * MS, rel=0.01) and sd == pytest.approx(20 * MS, rel=0.03)


def test_loss_duplication_and_reordering_have_the_rates_they_say() -> None:
    network = SimNetwork(Settings(mean=5 * MS, loss=0.1, dup=0.05, reorder=0.2, reorder_by=40 * MS), NAMES, 2)
    found = arrivals(network)
    lost = sum(not f for f in found) / len(found)
    twice = sum(len(f) == 2 for f in found) / len(found)
    late = sum(bool(f) and f[0] > 5 * MS for f in found) / len(found)
    assert lost == pytest.approx(0.1, abs=0.01)
    assert twice == pytest.approx(0.05 * 0.9, abs=0.01)
    assert late == pytest.approx(0.2 * 0.9, abs=0.015)
    assert max(max(f) for f in found if f) <= 45 * MS
    assert network.counts["lost"] == sum(not f for f in found)


def test_links_and_seeds_are_independent() -> None:
    settings = Settings(loss=0.5)
    ab = arrivals(SimNetwork(settings, NAMES, 1), 4000)
    ba = arrivals(SimNetwork(settings, NAMES, 1), 4000, "b", "a")
    ac = arrivals(SimNetwork(settings, NAMES, 1), 4000, "a", "c")
    other = arrivals(SimNetwork(settings, NAMES, 2), 4000)
    assert ab == arrivals(SimNetwork(settings, NAMES, 1), 4000)
    for x in (ba, ac, other):
        assert sum(p == q for p, q in zip(ab, x, strict=True)) / 4000 == pytest.approx(0.5, abs=0.04)


def test_taking_a_message_away_does_not_change_the_fate_of_others() -> None:
    settings = Settings(loss=0.5, dup=0.2, reorder=0.3)
    every, some = SimNetwork(settings, NAMES, 1), SimNetwork(settings, NAMES, 1)
    for i in range(500):
        fate = every.datagram(i * MS, "a", "b", 1)
        if i % 3:
            assert some.datagram(i * MS, "a", "b", 1) == fate


def test_streams_are_fifo_lose_nothing_and_pay_for_loss_with_time() -> None:
    network = SimNetwork(Settings(latency="normal", mean=10 * MS, sd=4 * MS, loss=0.2), NAMES, 1)
    times = [network.stream(i * MS, "a#1", "a", "b#1", "b", 100) for i in range(5000)]
    assert None not in times and times == sorted(t for t in times if t is not None)
    assert network.counts["retransmitted"] / 5000 == pytest.approx(0.25, abs=0.03)
    assert max(t - i * MS for i, t in enumerate(times) if t is not None) >= 50 * MS


def test_a_cut_link_loses_datagrams_and_streams_in_one_direction() -> None:
    network = SimNetwork(Settings(mean=MS), NAMES, 1)
    network.cut("a", "b")
    network.cut("a", "b")
    assert network.datagram(0, "a", "b", 1) == () and network.stream(0, "a#1", "a", "b#1", "b", 1) is None
    assert network.datagram(0, "b", "a", 1) == (MS,)
    network.mend("a", "b")
    assert network.datagram(1, "a", "b", 1) == ()  # two partitions overlapped
    network.mend("a", "b")
    assert network.datagram(2, "a", "b", 1) == (MS + 2,)


def test_a_slow_link_is_slow_until_it_recovers() -> None:
    network = SimNetwork(Settings(mean=MS), NAMES, 1)
    network.slow("a", "b", 5 * MS)
    assert network.datagram(0, "a", "b", 1) == (6 * MS,) and network.datagram(0, "b", "a", 1) == (MS,)
    network.slow("a", "b", -5 * MS)
    assert network.datagram(1, "a", "b", 1) == (MS + 1,)


def test_the_uplink_serialises_queues_and_drops() -> None:
    network = SimNetwork(Settings(mean=MS, uplink=1_000_000, queue=2500), NAMES, 1)
    # 1000 bytes take 1 ms; two fit the queue, the third does not
    assert network.datagram(0, "a", "b", 1000) == (2 * MS,)
    assert network.datagram(0, "a", "c", 1000) == (3 * MS,)
    assert network.datagram(0, "a", "b", 1000) == ()
    assert network.counts["overflowed"] == 1
    assert network.datagram(0, "b", "a", 1000) == (2 * MS,)  # everybody has their own
    assert network.datagram(2 * MS, "a", "b", 1000) == (4 * MS,)


MATRIX = ",x,y\nx,0,80\ny,90,2\n"


def test_recorded_latencies_are_half_a_round_trip(tmp_path: Path) -> None:
    (tmp_path / "rtt.csv").write_text(MATRIX, encoding="utf-8")
    network = SimNetwork(Settings(latency="recorded", file="rtt.csv"), NAMES, 1, tmp_path)
    assert network.datagram(0, "a", "b", 1) == (40 * MS,)
    assert network.datagram(0, "b", "a", 1) == (45 * MS,)
    assert network.datagram(0, "a", "c", 1) == (1000,)  # both in x


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a matrix"),
        (",x,y\nx,0\ny,1,2\n", "row 2 has 1 values"),
        (",x\n", "is not a matrix"),
        (",x,y\nx,0,?\ny,1,2\n", "row 2: could not convert"),
        (",x,y\nx,0,-1\ny,1,2\n", "row 2: want round-trip times"),
        (",x,y\nx,0,nan\ny,1,2\n", "row 2: want round-trip times"),
        (",x,y\nx,0,1\nz,1,2\n", "differ"),
    ],
)
def test_a_malformed_matrix_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "rtt.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"rtt\.csv") as error:
        read_matrix(tmp_path / "rtt.csv")
    assert said in str(error.value)


def test_a_missing_matrix_and_a_missing_city_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.csv: .*--latencies"):
        SimNetwork(Settings(latency="recorded", file="gone.csv"), NAMES, 1, tmp_path)
    (tmp_path / "rtt.csv").write_text(MATRIX, encoding="utf-8")
    with pytest.raises(ConfigError, match="has no row 'z'"):
        SimNetwork(Settings(latency="recorded", file="rtt.csv", cities=("z",)), NAMES, 1, tmp_path)


def test_a_real_matrix_is_read() -> None:
    matrix = read_matrix(CITIES)
    assert len(matrix) == 217 and 200 < matrix["Paris"]["Tokyo"] < 300


def test_a_local_clock_and_its_inverse() -> None:
    for drift in (-50_000, -3, 0, 7, 50_000):
        clock = LocalClock(12345, drift)
        for local in range(12345, 12345 + 10**6, 7919):
            true = clock.when(local)
            assert clock.at(true) >= local and (true == 0 or clock.at(true - 1) < local)
        before = clock.at(10**9)
        clock.change(10**9, -drift, 55)
        assert clock.at(10**9) == before + 55
        assert clock.at(clock.when(before + 10**6)) >= before + 10**6
