"""Measures a run beyond its tally: which member got each frame, how and when, and the bytes sent.

A meter watches a run: `run(loaded, seed, watch=meter.saw)`. It counts frames published in a window, at members present
long before and after. So the start and end of a run, and members that have just restarted, do not distort the results.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec

from whence.core import ports
from whence.core.clock import AnyFrame, MemberId
from whence.core.member import Member
from whence.core.wire import pack
from whence.lab.sim.tally import Key
from whence.lab.stats import quantile


class Frames(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one run."""

    frames: int
    """Published in the window."""
    by_gossip: int
    """Of them, those that reached everybody by gossip alone."""
    by_all: int
    """Those that everybody delivered in the end."""
    pairs: int
    """Pairs of a frame and a member that should get it."""
    gossip_missed: int
    """Of these pairs, those that gossip missed."""
    lost: int
    """Those that were never delivered."""
    latency_ms: dict[str, float]
    """From publish to delivery at another member: mean, p50, p99."""
    bytes_per_s: float
    """Mean bytes sent by a member in the window; 0 without `sizes`."""
    gossip_bytes: float
    """Mean size of a gossip message with a digest."""
    asked: int
    """Recovery: events requested, once per member and event."""
    answered: int
    """Of them, those that recovery delivered."""
    overtaken: int
    """Of them, those that gossip delivered first."""


class _Presence:
    """When a member was present, and its bit in the tables."""

    __slots__ = ("begun", "bit", "last")

    def __init__(self, bit: int, now: int) -> None:
        self.bit = bit
        self.begun = self.last = now


class Meter:
    """Measures one run. Times are true time, so clocks must be exact (no `[clocks]`).

    `start`, `stop`: the window in which published frames count. `warm`: how long a member must be present before and
    after a frame for the frame to count there. `sizes`: count bytes (costs an encoding per message). `spread`: how long
    gossip takes; for delivery by gossip alone, a member must be present from the publish until then (default: `warm`).
    """

    def __init__(
        self,
        start: int,
        stop: int,
        warm: int,
        *,
        sizes: bool = False,
        spread: int | None = None,
    ) -> None:
        self.start, self.stop, self.warm = start, stop, warm
        self.sizes = sizes
        self.spread = spread
        self.sendings: list[tuple[int, int, int]] = []
        """With `sizes`: (member, time, bytes) of every message in the window, in order of time."""
        self._presences: dict[MemberId, _Presence] = {}
        self._born: dict[Key, int] = {}
        self._gossip: dict[Key, int] = {}
        self._delivered: dict[Key, int] = {}
        self._latencies = array("q")
        self._asked: set[tuple[int, object, int, int]] = set()  # counted and looked up, never iterated
        self._answered: set[tuple[int, object, int, int]] = set()
        self._overtaken: set[tuple[int, object, int, int]] = set()
        self._bytes = self._gossip_bytes = self._gossips = 0
        self._packed: tuple[object, int] = (None, 0)

    def saw(self, member: Member, outs: Sequence[ports.Output], now: int) -> None:
        """The outputs of one step."""
        presence = self._presences.get(member.me)
        if presence is None:
            presence = self._presences[member.me] = _Presence(len(self._presences), now)
        presence.last = now
        counting = self.sizes and self.start <= now < self.stop
        for out in outs:
            if type(out) is ports.Send:
                if counting:
                    self._sent(member, presence, out, now)
            elif type(out) is ports.Arrived:
                self._answer(self._answered if out.recovered else self._overtaken, presence, out.frame)
                if not out.recovered:
                    self._note(self._gossip, presence, out.frame.key)
            elif type(out) is ports.Deliver:
                self._note(self._delivered, presence, out.frame.key)
                born = self._born.get(out.frame.key)
                if born is not None and out.frame.owner != member.me and self._counts(presence, born):
                    self._latencies.append(now - born)
            elif type(out) is ports.Published:
                self._born[out.frame.key] = now
                self._note(self._gossip, presence, out.frame.key)
            elif type(out) is ports.Asked and self.start <= now < self.stop:
                for who, inc, first, last in out.ranges:
                    self._asked.update((presence.bit, who, inc, seq) for seq in range(first, last + 1))

    def _counts(self, presence: _Presence, born: int) -> bool:
        """Whether the frame was published in the window and the member was present long before."""
        return self.start <= born < self.stop and presence.begun <= max(0, born - self.warm)

    def _there(self, born: int, end: int) -> tuple[int, int]:
        """The members that a frame counts for, as bits: those present long before and after it, and those present while
        gossip spreads it."""
        there = spread_to = 0
        for presence in self._presences.values():
            if self._counts(presence, born) and presence.last >= min(born + self.warm, end - self.warm):
                there |= 1 << presence.bit
            if (
                self.spread is not None
                and presence.begun <= born
                and presence.last >= min(born + self.spread, end - self.warm)
            ):
                spread_to |= 1 << presence.bit
        return there, there if self.spread is None else spread_to

    def _note(self, table: dict[Key, int], presence: _Presence, key: Key) -> None:
        table[key] = table.get(key, 0) | 1 << presence.bit

    def _answer(self, table: set[tuple[int, object, int, int]], presence: _Presence, frame: AnyFrame) -> None:
        who, inc, first = frame.key
        table.update(
            asked for s in range(first, first + frame.count) if (asked := (presence.bit, who, inc, s)) in self._asked
        )

    def _sent(self, member: Member, presence: _Presence, out: ports.Send, now: int) -> None:
        last, size = self._packed
        if out.message is not last:  # gossip sends one message to many
            size = len(pack(member.config.cluster, member.me, out.message))
            self._packed = (out.message, size)
        self._bytes += size
        self.sendings.append((presence.bit, now, size))
        if getattr(out.message, "digest", None) is not None:
            self._gossips += 1
            self._gossip_bytes += size

    def result(self) -> Frames:
        """The results, after the run."""
        end = max((presence.last for presence in self._presences.values()), default=0)
        frames = by_gossip = by_all = pairs = gossip_missed = lost = 0
        for key, born in self._born.items():
            if not self.start <= born < self.stop:
                continue
            there, spread_to = self._there(born, end)
            missed, never = spread_to & ~self._gossip.get(key, 0), there & ~self._delivered.get(key, 0)
            frames += 1
            by_gossip += not missed
            by_all += not never
            pairs += there.bit_count() - 1
            gossip_missed += (missed & there).bit_count()
            lost += never.bit_count()
        members = len({presence.bit for presence in self._presences.values() if presence.begun == 0}) or 1
        return Frames(
            frames=frames,
            by_gossip=by_gossip,
            by_all=by_all,
            pairs=pairs,
            gossip_missed=gossip_missed,
            lost=lost,
            latency_ms=_summary(self._latencies),
            bytes_per_s=self._bytes / members / ((self.stop - self.start) / 1e9),
            gossip_bytes=self._gossip_bytes / max(1, self._gossips),
            asked=len(self._asked),
            answered=len(self._answered),
            overtaken=len(self._overtaken),
        )


def _summary(values: array[int]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    found = {"mean": sum(ordered) / len(ordered), "p50": quantile(ordered, 0.5), "p99": quantile(ordered, 0.99)}
    return {name: ns / 1e6 for name, ns in found.items()}
