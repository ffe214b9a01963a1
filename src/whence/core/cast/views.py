"""Membership: the full view, and lpbcast's partial view.

Membership is gossiped with everything else. A member puts itself, with age 0, into every message of its rounds. An
entry's age is the rounds since then: every holder adds one before it passes the entry on, and the younger of two
entries counts. Rules:

1. The entries of a crashed member grow older everywhere. After `expire` rounds it is gone from all views; an entry of
   that age is never taken, so the member does not come back.
2. A member that has left is never vouched for: it has a tombstone for `expire` rounds (a bounded number of them), and
   is passed on in `unsubs` for the first `termination` rounds after it was heard of. Each member passes it on `fanout *
   termination` times, so practically all hear of it.
3. A newer boot of an address replaces an older one; an older one is never taken from hearsay. A member's own message
   beats hearsay: the boot that sent it replaces a newer one, and undoes a leave, known from others alone or silent for
   `LATE` rounds. So neither a lie about an address nor a clock that was ahead bans it. Boots far in the future
   (`FUTURE`) are never taken.
4. Expired addresses are remembered (a bounded number) and retried now and then: after a partition longer than `expire`
   neither side has an entry of the other.
5. In a full view names are earned: what others say of an unknown member is a **hint**. It is asked (SUBSCRIBE), and a
   member once it has spoken itself. Nobody draws from hints or passes them on, and one teller has at most
   `HINTS_EACH` of them open, so a liar cannot fill views with invented members. lpbcast's view is hearsay by design.
6. Whoever is said to have left is asked after `LATE` rounds: of two that were told so of each other neither would speak
   first. Whoever denied it by word of its own is not buried by hearsay again.

lpbcast has no ages and no expiry: a crashed process stays in the views until it is evicted by chance.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

from whence.core.cast.config import CastConfig
from whence.core.cast.messages import Aged, CastOutput, CastStats, MemberDown, MemberUp, parts
from whence.core.clock import MemberId, is_member_id, member_id
from whence.core.clock.bounds import keep_last
from whence.errors import UsageError

FRESH = 4
"""A full view passes on assertions younger than this first: they are news to most."""

FUTURE = 1 << 40
"""By how much a boot may be above this member's own, in milliseconds of live boots some 35 years. Beyond it is a lie or
a clock that nobody should follow."""

LATE = 10
"""Rounds within which a message of an earlier life may still be on its way. After that, what a member says itself beats
what others say of its address."""

HINTS_EACH = 8
"""Hints of one teller (rule 5) that wait for an answer. More: a joiner knows a large cluster sooner, and a liar makes
others knock at more addresses."""
MAX_HINTS = 256

LOST_AGE = 15
"""An entry at least this old that a partial view drops is a lost contact. With 200 members and views of 18, a member
drops such an entry of a live one once in 70 rounds, and a third of the members keep one from beyond a partition."""


def pick(pool: Sequence[MemberId], k: int, rng: random.Random) -> list[MemberId]:
    """`k` distinct members at random; all of them, in order, if there are no more than `k`."""
    n = len(pool)
    if k >= n:
        return list(pool)
    if 2 * k > n:
        return rng.sample(pool, k)
    chosen: dict[int, None] = {}  # several times faster than rng.sample for a few of many
    while len(chosen) < k:
        chosen[int(rng.random() * n)] = None
    return [pool[i] for i in chosen]


class Tomb(NamedTuple):
    """This boot of an address, and older ones, are not taken."""

    boot: int
    since: int
    """The round of ours in which it left."""
    heard: int
    """The round in which we heard so."""
    left: bool
    """It left by itself: tell others. Otherwise the layer above removed it here alone."""


class View(ABC):
    """What the full and the partial view have in common: entries with ages, leavers, boots, lost contacts."""

    def __init__(self, me: MemberId, config: CastConfig, rng: random.Random) -> None:
        if not is_member_id(me):
            raise UsageError(f"{me!r} is no member id; want address#boot")
        self.me = me
        self.config = config
        self.rng = rng
        self.stats = CastStats()
        self.round = 0
        self.changes = 0  # how often a member entered or left: while it stays the same, so does the view
        self.born: dict[MemberId, int] = {}
        """Member -> the round of ours in which it last asserted itself: its age is `round - born`."""
        self.at: dict[str, MemberId] = {}  # address -> member, for those in the view
        self.gone: dict[str, Tomb] = {}  # address -> tombstone (rule 2)
        self.lost: dict[str, MemberId] = {}  # address -> the member that expired (rule 4)
        self.fresh: list[list[MemberId]] = []
        """By age (full views only): members that asserted themselves so many rounds ago; one that did so again is in
        two lists."""
        self.spoken: dict[str, tuple[int, int]] = {}
        """Address -> the boot that last sent us something itself, and in which round."""
        self.hints: dict[MemberId, tuple[MemberId, int]] = {}
        """Hearsay that waits for a word of the member itself (rule 5): who told, and as in `born`."""
        self.unasked: list[MemberId] = []  # hints that nobody was asked about yet
        self._open: dict[MemberId, int] = {}  # teller -> its hints
        self._denied: dict[str, int] = {}  # address -> the boot that has denied to have left (rule 6)
        self._doubted: dict[MemberId, int] = {}  # members of which only others say so -> the round to ask them in
        self._taken: dict[str, int] = {}  # address -> the round in which its member was added
        self._address, boot = parts(me)
        self._future = boot + FUTURE
        self._pool: list[MemberId] | None = []
        self._scan_at = 0
        self._try_at = 0
        self._expire = config.expire_rounds(self.cluster_size())

    # What the two kinds differ in

    @abstractmethod
    def cluster_size(self) -> int:
        """The number of members that the expiry is computed for."""

    @abstractmethod
    def _full(self) -> bool:
        """Nobody else can be added."""

    def _added(self, member: MemberId, out: list[CastOutput]) -> None:  # noqa: B027
        """A member was added: make room if need be, and see that others hear of it."""

    @abstractmethod
    def subscriptions(self) -> tuple[Aged, ...]:
        """The entries for the messages of this round: this member, and at most `max_members - 1` others."""

    # Reading

    @property
    def pool(self) -> list[MemberId]:
        """The members, oldest first; to be read only."""
        if self._pool is None:
            self._pool = list(self.born)
        return self._pool

    def unsubs(self) -> tuple[Aged, ...]:
        """The members that left lately, the latest first, for the messages of this round."""
        if not self.gone:
            return ()
        found = [
            (member_id(address, tomb.boot), self.round - tomb.since)
            for address, tomb in reversed(self.gone.items())
            if tomb.left and self.round - tomb.heard <= self.config.termination
        ]
        return tuple(found[: self.config.max_members])

    def welcome(self, wanted: int, subscriber: MemberId) -> tuple[Aged, ...]:
        """A sample of the view for a subscriber, with this member itself."""
        k = min(wanted, self.config.max_welcome) - 1
        others = [m for m in pick(self.pool, k + 1, self.rng) if m != subscriber][: max(0, k)]
        return ((self.me, 0), *((m, self.round - self.born[m]) for m in others))

    def lost_contact(self) -> MemberId | None:
        """An expired member to retry: every `lost_every` rounds, or in every round when the view is empty."""
        if not self.lost or (self.born and self.round < self._try_at):
            return None
        self._try_at = self.round + self.config.lost_every
        self.stats.lost_tried += 1
        return pick(list(self.lost.values()), 1, self.rng)[0]

    # Changing

    def merge(self, members: Sequence[Aged], out: list[CastOutput], teller: MemberId | None = None) -> None:
        """Take a peer's entries: of two for one member the younger. Without a `teller` they are not hearsay."""
        born, now, fresh = self.born, self.round, self.fresh
        for member, age in members:  # the hot loop: ten entries a message, most of them known
            known = born.get(member)
            if known is None:
                if member == self.me:
                    continue
                if member == teller or teller is None:
                    self.admit(member, age, out)
                else:
                    self._hear_of(member, age, teller, out)
            elif now - age > known:
                born[member] = now - age
                if age < len(fresh):
                    fresh[age].append(member)

    def _hear_of(self, member: MemberId, age: int, teller: MemberId, out: list[CastOutput]) -> None:
        """Somebody else tells of an unknown member."""
        self.admit(member, age, out)

    def _barred(self, member: MemberId, age: int) -> bool:
        """A rule forbids this entry."""
        address, boot = parts(member)
        return age >= self._expire or address == self._address or boot > self._future or self._outdated(address, boot)

    def _unhint(self, member: MemberId) -> None:
        """The hint is answered, or nobody answers."""
        if member in self.hints:
            teller, _ = self.hints.pop(member)
            self._open[teller] -= 1
            if not self._open[teller]:
                del self._open[teller]

    def admit(self, member: MemberId, age: int, out: list[CastOutput]) -> None:
        """Add another member that is not in the view, unless a rule forbids it."""
        self._unhint(member)
        if self._barred(member, age):
            self.stats.refused += 1
            return
        address, _ = parts(member)
        if address in self.at:
            self._drop(self.at[address], "restarted", out)
        elif self._full():
            self.stats.refused += 1
            return
        self.lost.pop(address, None)
        self._taken[address] = self.round
        self.at[address] = member
        self.born[member] = self.round - age
        self.stats.joined += 1
        out.append(MemberUp(member))
        self._changed()
        self._added(member, out)

    def _outdated(self, address: str, boot: int) -> bool:
        """This boot has left, or a newer one is known (rules 2 and 3)."""
        if address in self.gone and boot <= self.gone[address].boot:
            return True
        for known in (self.at.get(address), self.lost.get(address)):
            if known is not None and boot < parts(known)[1]:
                return True
        return False

    def spoke(self, member: MemberId, out: list[CastOutput]) -> None:
        """The member itself has sent something (rule 3)."""
        address, boot = parts(member)
        known = self.at.get(address)
        if known != member and boot <= self._future and address != self._address:
            last, at = self.spoken.get(address, (-1, 0))
            if last > boot and self.round - at <= LATE:
                return  # a message of an earlier life
            self._believe(member, address, boot, out)
            self._met(member, out)
        self.spoken.pop(address, None)
        self.spoken[address] = (boot, self.round)
        if len(self.spoken) > self.config.max_view:
            keep_last(self.spoken, self.config.max_view)

    def _believe(self, member: MemberId, address: str, boot: int, out: list[CastOutput]) -> None:
        """Its own word against what is known of its address."""
        known, lost, tomb = self.at.get(address), self.lost.get(address), self.gone.get(address)
        said = False
        if tomb is not None and tomb.left and tomb.boot >= boot:
            if self.round - tomb.heard <= LATE:
                return
            said = True
            del self.gone[address]
            self._denied[address] = boot
            keep_last(self._denied, self.config.unsubs_size)
        if known is not None and parts(known)[1] > boot:
            if self.round - self._taken[address] <= LATE:
                return
            said = True
            self._drop(known, "restarted", out)
        if lost is not None and parts(lost)[1] > boot:
            said = True
            del self.lost[address]
        if said:
            self._disbelieve(address)
            self.admit(member, 0, out)

    def _met(self, member: MemberId, out: list[CastOutput]) -> None:  # noqa: B027
        """It has spoken, and is not in the view."""

    def _disbelieve(self, address: str) -> None:  # noqa: B027
        """Forget what others said of this address; what a kind of view keeps beside its entries."""

    def subscribe(self, member: MemberId, out: list[CastOutput]) -> None:
        """The member itself asks to be in: unlike hearsay, that undoes a `remove`."""
        address, boot = parts(member)
        tomb = self.gone.get(address)
        if tomb is not None and tomb.boot == boot and not tomb.left:
            del self.gone[address]
        self.merge(((member, 0),), out)

    def unsubscribe(self, unsubs: Sequence[Aged], out: list[CastOutput], teller: MemberId) -> None:
        """A peer says who left."""
        for member, age in unsubs:
            address, boot = parts(member)
            if address == self._address or age >= self._expire or boot > self._future:
                continue
            tomb = self.gone.get(address)
            if member != teller and self._denied.get(address) == boot:
                self.stats.refused += 1
            elif tomb is None or boot > tomb.boot or (boot == tomb.boot and not tomb.left):
                if member != teller and self.at.get(address) == member:
                    self._doubted[member] = self.round + LATE + 1
                    keep_last(self._doubted, self.config.unsubs_size)
                self._bury(member, self.round - age, True, out)

    def remove(self, member: MemberId, out: list[CastOutput]) -> None:
        """The layer above knows that the member is dead or hostile."""
        if is_member_id(member):
            self._bury(member, self.round, False, out)

    def vacate(self, address: str, out: list[CastOutput]) -> None:
        """Its member is at another address now."""
        if address in self.at:
            self._drop(self.at[address], "restarted", out)

    def _bury(self, member: MemberId, since: int, left: bool, out: list[CastOutput]) -> None:
        address, boot = parts(member)
        self.gone.pop(address, None)
        self.gone[address] = Tomb(boot, since, self.round, left)
        self.stats.unsubs_dropped += keep_last(self.gone, self.config.unsubs_size)
        for known in (self.at.get(address), self.lost.get(address)):
            if known is not None and parts(known)[1] <= boot:
                self.lost.pop(address, None)
                if known in self.born:
                    self._drop(known, "left" if left else "removed", out)

    def _drop(self, member: MemberId, reason: str, out: list[CastOutput]) -> None:
        del self.born[member]
        address = parts(member)[0]
        del self.at[address]
        self._taken.pop(address, None)
        setattr(self.stats, reason, getattr(self.stats, reason) + 1)
        out.append(MemberDown(member, reason))
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self._pool = None
        self._scan_at = 0
        self._expire = self.config.expire_rounds(self.cluster_size())

    def tick(self, rounds: int, out: list[CastOutput]) -> None:
        """Rounds have passed, more than one after a pause: everything is that much older (rule 1)."""
        self.round += rounds
        for member in [m for m, at in self._doubted.items() if at <= self.round]:
            del self._doubted[member]
            self.unasked.append(member)
        for member in [m for m, (_, born) in self.hints.items() if self.round - born >= self._expire]:
            self._unhint(member)
            if len(self.lost) < self.config.lost_size // 2:  # the rest is for those that were members
                self._lose(member)
        if self.round >= self._scan_at:
            self._expire_members(out)
        while self.gone:
            address = next(iter(self.gone))
            if self.round - self.gone[address].since < self._expire:
                break
            del self.gone[address]

    def _expire_members(self, out: list[CastOutput]) -> None:
        oldest = self.round - self._expire
        for member in [m for m, born in self.born.items() if born <= oldest]:
            self._drop(member, "expired", out)
            self._lose(member)
        # Entries only grow younger, so nothing expires before this, unless `_changed` says otherwise.
        self._scan_at = min(self.born.values(), default=self.round) + self._expire

    def _lose(self, member: MemberId) -> None:
        """Remember it as a lost contact (rule 4); when there are too many, the oldest goes."""
        address = parts(member)[0]
        self.lost.pop(address, None)
        self.lost[address] = member
        self.stats.lost_dropped += keep_last(self.lost, self.config.lost_size)


class FullView(View):
    """All members are known. A message has room for `max_members` entries: newcomers first (at most half of the room),
    then the freshest assertions, then any. So every member hears of every other about `fanout * max_members / N` times
    a round (`sizing.expire`)."""

    def __init__(self, me: MemberId, config: CastConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng)
        self.fresh = [[] for _ in range(FRESH)]

    def cluster_size(self) -> int:
        return len(self.born) + 1

    def _full(self) -> bool:
        return len(self.born) >= self.config.max_view

    def _hear_of(self, member: MemberId, age: int, teller: MemberId, out: list[CastOutput]) -> None:
        if member in self.hints:
            return
        room = self._open.get(teller, 0) < HINTS_EACH and len(self.hints) < MAX_HINTS
        if not room or self._full() or self._barred(member, age):
            self.stats.refused += 1
            return
        self.hints[member] = (teller, self.round - age)
        self._open[teller] = self._open.get(teller, 0) + 1
        self.unasked.append(member)

    def _met(self, member: MemberId, out: list[CastOutput]) -> None:
        if member not in self.born:
            self.admit(member, 0, out)

    def tick(self, rounds: int, out: list[CastOutput]) -> None:
        super().tick(rounds, out)
        for _ in range(min(rounds, FRESH)):
            self.fresh.pop()
            self.fresh.insert(0, [])

    def _newcomers(self) -> list[MemberId]:
        """Those that were added in the last `termination` rounds, in that order."""
        old = self.round - self.config.termination
        found = list(takewhile(lambda address: self._taken[address] > old, reversed(self._taken)))
        return [self.at[address] for address in reversed(found)]

    def subscriptions(self) -> tuple[Aged, ...]:
        room = self.config.max_members - 1
        now, born = self.round, self.born
        chosen = {m: now - born[m] for m in pick(self._newcomers(), (room + 1) // 2, self.rng)}
        for age, members in enumerate(self.fresh):
            for m in members:
                if len(chosen) == room:
                    return ((self.me, 0), *chosen.items())
                if born.get(m) == now - age:
                    chosen[m] = age
        for m in pick(self.pool, room, self.rng):
            if len(chosen) == room:
                break
            chosen[m] = now - born[m]
        return ((self.me, 0), *chosen.items())


class PartialView(View):
    """lpbcast's view (Eugster et al., Lightweight probabilistic broadcast, 2003): bounded, and mixed all the time. What
    a message names is added to the view and to `subs`; a view too large evicts at random, into `subs`; `subs` too large
    drop at random; messages carry a random part of `subs`. So every view is about a uniform sample.

    Departs from lpbcast, which has no ages: of two drawn at random the older goes, from view and `subs` alike. Every
    member makes the same number of young entries, so all are in about as many views: with 200 members and views of 18
    the standard deviation falls from 9.7 to 6.6, and the graph of views stays strongly connected, where lpbcast's rule
    leaves somebody in no view in two rounds out of three. Dead members fade sooner, mostly before they expire, so a
    dropped entry of `LOST_AGE` already counts as a lost contact.
    """

    def __init__(self, me: MemberId, config: CastConfig, rng: random.Random) -> None:
        super().__init__(me, config, rng)
        self.subs: dict[str, tuple[MemberId, int]] = {}  # address -> (member, born) to be recirculated

    def cluster_size(self) -> int:
        return self.config.members

    def _outdated(self, address: str, boot: int) -> bool:
        known = self.subs.get(address)
        return (known is not None and boot < parts(known[0])[1]) or super()._outdated(address, boot)

    def _disbelieve(self, address: str) -> None:
        self.subs.pop(address, None)

    def _full(self) -> bool:
        return False  # there is always room: somebody else is evicted

    def _added(self, member: MemberId, out: list[CastOutput]) -> None:
        self._recirculate(member, self.born[member])
        while len(self.born) > self.config.view_size:
            evicted = min(pick(self.pool, 2, self.rng), key=self.born.__getitem__)
            born = self.born[evicted]
            self._drop(evicted, "evicted", out)
            self._recirculate(evicted, born)

    def _recirculate(self, member: MemberId, born: int) -> None:
        address = parts(member)[0]
        known = self.subs.get(address)
        self.subs[address] = (member, max(born, known[1]) if known and known[0] == member else born)
        if len(self.subs) > self.config.subs_size:
            self._drop_sub(min(pick(list(self.subs), 2, self.rng), key=lambda a: self.subs[a][1]))
            self.stats.subs_dropped += 1

    def _drop_sub(self, address: str) -> None:
        member, born = self.subs.pop(address)
        if self.round - born >= LOST_AGE and address not in self.at and address not in self.gone:
            self._lose(member)

    def _bury(self, member: MemberId, since: int, left: bool, out: list[CastOutput]) -> None:
        super()._bury(member, since, left, out)
        address, boot = parts(member)
        known = self.subs.get(address)
        if known is not None and parts(known[0])[1] <= boot:
            del self.subs[address]

    def tick(self, rounds: int, out: list[CastOutput]) -> None:
        super().tick(rounds, out)
        oldest = self.round - self._expire
        for address in [a for a, (_, born) in self.subs.items() if born <= oldest]:
            self._drop_sub(address)

    def subscriptions(self) -> tuple[Aged, ...]:
        room = self.config.max_members - 1
        chosen: dict[MemberId, int] = {}
        for address in pick(list(self.subs), room, self.rng):
            member, born = self.subs[address]
            chosen[member] = self.round - max(born, self.born.get(member, born))
        for member in pick(self.pool, room, self.rng):
            if len(chosen) == room:
                break
            chosen[member] = self.round - self.born[member]
        return ((self.me, 0), *chosen.items())
