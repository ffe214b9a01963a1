"""The network between simulated processes: what arrives, when, and how often.

Randomness is a hash, not a stream: the fate of a message depends only on the seed, the link and the time it is sent. So
removing an action from a schedule does not change the fate of unrelated messages, which makes shrinking possible.

Datagrams can be lost, duplicated, reordered, delayed, cut off, and dropped at a full uplink. Streams behave like TCP:
FIFO per pair of member ids, no duplicates, and a loss causes a retransmission delay. What is sent into a cut link is
lost, on a stream too, without an error; what is in flight when the link is cut still arrives.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from statistics import NormalDist

from whence.errors import ConfigError
from whence.lab.latencies import read_matrix
from whence.lab.sim.scenario import NetworkSettings

_M = (1 << 64) - 1
_TABLE = 4096  # quantiles of the normal distribution: 12 bits of a hash pick one
_LEAST = 1000  # ns: the smallest delay
_NO_MOMENT = (-1, 0, 0)
COUNTS = ("sent", "bytes", "lost", "cut off", "duplicated", "reordered", "overflowed", "retransmitted")
_MAX_RETRANSMISSIONS = 8  # after that the stream would be reset; the last delay stands for it


def key_of(text: str) -> int:
    """A 64-bit hash of the text, independent of PYTHONHASHSEED."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def mix(x: int) -> int:
    """A 64-bit finaliser (the constants of splitmix64): neighbouring inputs give unrelated outputs."""
    x &= _M
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _M
    x = (x ^ x >> 27) * 0x94D049BB133111EB & _M
    return x ^ x >> 31


@cache
def _quantiles() -> list[float]:
    """Of the normal distribution."""
    normal = NormalDist()
    return [normal.inv_cdf((i + 0.5) / _TABLE) for i in range(_TABLE)]


class SimNetwork:
    """Decides the fate of each message. Times are true time in ns."""

    def __init__(self, settings: NetworkSettings, names: tuple[str, ...], seed: int, base: Path | None = None) -> None:
        self.settings = settings
        self._seed = key_of(f"{seed}/network")
        self._keys = {n: (key_of(n) | 1, mix(key_of(n))) for n in names}
        self._loss = round(settings.loss * (1 << 20))
        self._dup = round(settings.dup * (1 << 16))
        self._reorder = round(settings.reorder * (1 << 16))
        self._jitter = [round(settings.sd * z) for z in _quantiles()]
        self._base = recorded(settings, names, base) if settings.latency == "recorded" else None
        if settings.latency == "constant":
            self._jitter = [0] * _TABLE
        delays = [settings.mean] if self._base is None else sorted(self._base.values())
        self.typical = delays[len(delays) * 9 // 10] + 2 * settings.sd
        self._retransmit = settings.retransmit or 4 * (sum(delays) // len(delays))
        self._cuts: dict[tuple[str, str], int] = {}
        self._slow: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], int] = {}
        self._free: dict[str, int] = {}
        self._moment: dict[str, tuple[int, int, int]] = {}
        self.counts = dict.fromkeys(COUNTS, 0)
        """Of the whole run."""

    # -- links that come and go -------------------------------------------------------------------------------

    def cut(self, src: str, dst: str) -> None:
        """Drop everything from src to dst until `mend`; cuts are counted."""
        self._cuts[src, dst] = self._cuts.get((src, dst), 0) + 1

    def mend(self, src: str, dst: str) -> None:
        left = self._cuts.get((src, dst), 0) - 1
        if left > 0:
            self._cuts[src, dst] = left
        else:
            self._cuts.pop((src, dst), None)

    def slow(self, src: str, dst: str, by: int) -> None:
        """Delay everything from src to dst by `by` ns more (negative: end an earlier delay)."""
        extra = self._slow.get((src, dst), 0) + by
        if extra > 0:
            self._slow[src, dst] = extra
        else:
            self._slow.pop((src, dst), None)

    # -- messages --------------------------------------------------------------------------------------------

    def _draw(self, now: int, src: str, dst: str) -> int:
        """The hash of (seed, link, time, index among the sender's messages at this time)."""
        then, k, mixed = self._moment.get(src, _NO_MOMENT)
        if then == now:
            k += 1
        else:
            k, mixed = 0, mix(self._seed + self._keys[src][0] * (now + 1))
        self._moment[src] = (now, k, mixed)
        return mix(mixed + self._keys[dst][1] + k)

    def _delay(self, draw: int, src: str, dst: str) -> int:
        mean = self.settings.mean if self._base is None else self._base[src, dst]
        delay = mean + self._jitter[draw >> 20 & (_TABLE - 1)]
        if self._slow:
            delay += self._slow.get((src, dst), 0)
        return delay if delay > _LEAST else _LEAST

    def _depart(self, now: int, src: str, size: int) -> int | None:
        """When the last byte has left the sender's uplink; None if its queue is full."""
        uplink = self.settings.uplink
        if not uplink:
            return now
        free = max(self._free.get(src, 0), now)
        if (free - now) * uplink // 10**9 + size > self.settings.queue:
            self.counts["overflowed"] += 1
            return None
        self._free[src] = free = free + size * 10**9 // uplink
        return free

    def datagram(self, now: int, src: str, dst: str, size: int) -> tuple[int, ...]:
        """The times at which a datagram arrives: none, one or two."""
        self.counts["sent"] += 1
        self.counts["bytes"] += size
        draw = self._draw(now, src, dst)
        departs = self._depart(now, src, size)
        if departs is None:
            return ()
        if self._cuts and (src, dst) in self._cuts:
            self.counts["cut off"] += 1
            return ()
        if draw & 0xFFFFF < self._loss:
            self.counts["lost"] += 1
            return ()
        at = departs + self._delay(draw, src, dst)
        if not (self._dup or self._reorder):
            return (at,)
        more = mix(draw)
        if draw >> 48 < self._reorder:
            self.counts["reordered"] += 1
            at += self.settings.reorder_by * (more >> 40) >> 24
        if draw >> 32 & 0xFFFF < self._dup:
            self.counts["duplicated"] += 1
            return (at, departs + self._delay(more, src, dst) + (self.settings.reorder_by * (more & 0xFFFF) >> 16))
        return (at,)

    def stream(self, now: int, sender: str, src: str, to: str, dst: str, size: int) -> int | None:
        """The time at which a message on the stream from member `sender` to member `to` arrives; None if never."""
        self.counts["sent"] += 1
        self.counts["bytes"] += size
        draw = self._draw(now, src, dst)
        departs = self._depart(now, src, size)
        if departs is None:
            return None
        if self._cuts and (src, dst) in self._cuts:
            self.counts["cut off"] += 1
            return None
        at = departs + self._delay(draw, src, dst)
        again = draw
        for _ in range(_MAX_RETRANSMISSIONS):
            if again & 0xFFFFF >= self._loss:
                break
            again = mix(again)
            at += self._retransmit
            self.counts["retransmitted"] += 1
        at = max(at, self._last.get((sender, to), 0))
        self._last[sender, to] = at
        return at


def recorded(settings: NetworkSettings, names: tuple[str, ...], base: Path | None) -> dict[tuple[str, str], int]:
    """One-way delays in ns between processes: half the recorded round trip of their cities."""
    path = Path(settings.file) if base is None else base / settings.file
    matrix = read_matrix(path)
    cities = settings.cities or tuple(matrix)
    for city in cities:
        if city not in matrix:
            raise ConfigError(f"network.cities: {path} has no row {city!r}; it has: {', '.join(list(matrix)[:8])}, ...")
    home = {n: cities[i % len(cities)] for i, n in enumerate(names)}
    return {(a, b): max(_LEAST, round(matrix[home[a]][home[b]] * 10**6 / 2)) for a in names for b in names}
