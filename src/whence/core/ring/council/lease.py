"""The lease of an owner: a quorum of one council vouches. Rule C2."""

from __future__ import annotations

from whence.core.clock import MemberId
from whence.core.ring.council.known import Councils


class Lease:
    """Which voters vouch for the present tenure, and until when."""

    def __init__(self, length: int, councils: Councils) -> None:
        self.length = length
        self.councils = councils
        self.sent: dict[int, int] = {}
        """Nonce -> when that poll was sent."""
        self.until: dict[int, dict[MemberId, int]] = {}
        """Council -> voter -> how long it vouches."""
        self._end: tuple[int, int] | None = None
        """The newest council, and when the lease runs out by what is known; None: count again."""

    def clear(self) -> None:
        self.sent, self.until, self._end = {}, {}, None

    def polled(self, nonce: int, now: int) -> None:
        self.sent = {n: at for n, at in self.sent.items() if at + self.length > now}
        self.until = {n: got for n, got in self.until.items() if n in self.councils.recent}
        self.sent[nonce], self._end = now, None

    def vouched(self, council: int, voter: MemberId, nonce: int, now: int) -> None:
        """A vouch counts from when its poll was sent: a slow answer only buys less time."""
        sent = self.sent.get(nonce)
        if sent is not None and council in self.councils.recent:
            got, self._end = self.until.setdefault(council, {}), None
            got[voter] = max(got.get(voter, 0), self.dated(sent, now) + self.length)

    def dated(self, sent: int, now: int) -> int:
        return sent

    def end(self) -> int:
        """When it runs out: the last moment at which a quorum of one council vouches. The councils before the newest
        count, too, until their vouches have run out."""
        if self._end is None or self._end[0] != self.councils.now.number:
            self._end = self.councils.now.number, self._count()
        return self._end[1]

    def _count(self) -> int:
        ends = [0]
        for number, got in self.until.items():
            voters = self.councils.recent.get(number, ())
            enough = self.councils.enough
            ends += [end for end in got.values() if enough(voters, [v for v, until in got.items() if until >= end])]
        return max(ends)
