"""The (N, R, K) clock of PCO17: `R` counters, of which every process increments its own `K`.

    (N, 1, 1)  Lamport's clock          every process has the one entry
    (N, R, 1)  plausible clocks         every process has one entry, shared with others
    (N, N, 1)  the vector clock         every process has one entry of its own (`keys` = its index)
    (N, R, K)  the paper's              every process has `K` entries, each shared with others

All four are this one class with other arguments. `V` is only a **count**: entry `x` is the number of messages sent or
delivered here whose sender has `x` among its keys, in whatever order they came. Entries run from 0 to `R - 1`
(the paper's worked example has an entry 4 of 4).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from functools import lru_cache
from itertools import permutations
from math import comb
from operator import sub
from random import Random
from typing import Generic, NamedTuple, Protocol, TypeVar

Keys = tuple[int, ...]
"""`f(p)`: the entries of one process, ascending."""

Stamp = tuple[int, ...]
"""`m.V`: the sender's vector just after it counted `m` itself."""


def unrank(set_id: int, R: int, K: int) -> Keys:
    """The `set_id`-th `K`-subset of `0 .. R-1` in lexicographic order, from 0 (PCO17 Algorithm 3).

    As printed the algorithm returns no valid subset: its `C_k^R` has to be the binomial of the *current* rest, each
    entry has to begin above the one before it, and ids that begin at 1 would leave out the first set.
    """
    _check(R, K)
    if not 0 <= set_id < comb(R, K):
        raise ValueError(f"set_id {set_id} is not in [0, C({R},{K}) = {comb(R, K)})")
    keys, x = [], 0
    for left in range(K - 1, -1, -1):
        while set_id >= (below := comb(R - 1 - x, left)):  # the sets that begin with x
            set_id -= below
            x += 1
        keys.append(x)
        x += 1
    return tuple(keys)


def keys_of(rng: Random, R: int, K: int) -> Keys:
    """Keys for a process: every set is equally likely (PCO17 section 4.1.3)."""
    _check(R, K)
    return unrank(rng.randrange(comb(R, K)), R, K)


def even_keys(index: int, R: int, K: int) -> Keys:
    """Keys of the process number `index`, so that the first N processes share the entries as evenly as can be (PCO17
    4.1.3, "perfect distribution", for which the paper gives no algorithm). Every `R` processes have the shifts of one
    set: each entry `K` times. The sets are chosen such that no difference of two entries comes twice, as long as there
    are any: then no two processes share two entries. For (N, 100, 4) that is so up to N = 600."""
    block, shift = divmod(index, R)
    return tuple(sorted((shift + x) % R for x in _shapes(R, K, 1 + block % MAX_SHAPES)[-1]))


MAX_SHAPES = 64


@lru_cache(maxsize=256)
def _shapes(R: int, K: int, count: int) -> tuple[Keys, ...]:
    """The first sets of `even_keys`, whose shifts the processes have. Each entry is the one whose differences to the
    others were used least, of those the one closest to an even spacing."""
    _check(R, K)
    before = _shapes(R, K, count - 1) if count > 1 else ()
    used = Counter((b - a) % R for shape in before for a, b in permutations(shape, 2))
    shape = [0]
    for j in range(1, K):
        here = used + Counter((b - a) % R for a, b in permutations(shape, 2))

        def cost(x: int, j: int = j, here: Counter[int] = here) -> tuple[int, int, float]:
            new = Counter((s * (x - y)) % R for y in shape for s in (1, -1))
            often = [here[d] + n for d, n in new.items()]
            return max(often), sum(often), abs(x - j * R / K)

        shape.append(min((x for x in range(1, R) if x not in shape), key=cost))
    return (*before, tuple(shape))


def least_used(rng: Random, R: int, K: int, others: Iterable[Keys]) -> Keys:
    """Keys for a process that comes later: the entries that the others use least, at random among equals."""
    _check(R, K)
    used = Counter(x for keys in others for x in keys)
    return tuple(sorted(sorted(range(R), key=lambda x: (used[x], rng.random()))[:K]))


def _check(R: int, K: int) -> None:
    if not 1 <= K <= R:
        raise ValueError(f"K = {K} keys of R = {R} entries: want 1 <= K <= R")


class Alerts(NamedTuple):
    """What a delivery says about itself. No alert means that nothing which depends on this message was delivered before
    it; an alert may be false."""

    covered: bool
    """PCO17 Algorithm 4: concurrent messages had already covered all the sender's entries. Never misses an error."""
    witnessed: bool
    """PCO17 Algorithm 5: moreover a recent delivery claims to depend on those very values. Misses an error only if the
    message that came too early is no longer in the list `L`."""


class ProbabilisticClock:
    """`V` of one process, and the list `L` of the stamps of its recent deliveries."""

    __slots__ = ("L", "V")

    def __init__(self, R: int, memory: int | None = None) -> None:
        """`memory`: length of `L` (None: unbounded). The paper wants what is delivered within one propagation time."""
        _check(R, 1)
        self.V = [0] * R
        self.L: deque[Stamp] = deque(maxlen=memory)

    @property
    def R(self) -> int:
        """Number of entries."""
        return len(self.V)

    def stamp(self, keys: Keys) -> Stamp:
        """Count an own message and stamp it (Algorithm 1)."""
        self.advance(keys)
        return tuple(self.V)

    def watch(self, keys: Keys, stamp: Stamp) -> Watch | None:
        """The first entry that is still too small for a message to be delivered (Algorithm 2): what has to rise before
        it is worth asking again; None if the message is ready."""
        for x, short in enumerate(map(sub, stamp, self.V)):
            if short > 0 and (short > 1 or x not in keys):
                return self.V, x, stamp[x] - (x in keys)
        return None

    def ready(self, keys: Keys, stamp: Stamp) -> bool:
        """`V[x] >= m.V[x] - 1` for the sender's entries, `V[x] >= m.V[x]` for all others (Algorithm 2)."""
        return self.watch(keys, stamp) is None

    def advance(self, keys: Keys) -> None:
        """Count a message: sent, delivered, or given up (an increment, not a maximum)."""
        for x in keys:
            self.V[x] += 1

    def covered(self, keys: Keys, stamp: Stamp) -> bool:
        """Algorithm 4, for a message that is ready: no entry of the sender stands at `m.V[x] - 1`."""
        V = self.V
        return all(V[x] >= stamp[x] for x in keys)

    def witnessed(self, keys: Keys, stamp: Stamp) -> bool:
        """Algorithm 5: covered, and a recent delivery depends on at least these values.

        The paper prints `V_i[x] > m.V[x]`, which is stricter than Algorithm 4 and misses true errors: in its own
        Figure 2 `m` comes too late to entries `[1, 2]` with `m.V` = `[1, 1]`. `>=` never misses one while `L` is long
        enough: if `m -> m'` and `m'` was delivered first, then `m'.V >= m.V` everywhere, and `V >= m'.V` since then.
        """
        return self.covered(keys, stamp) and any(all(past[x] >= stamp[x] for x in keys) for past in self.L)

    def deliver(self, keys: Keys, stamp: Stamp) -> Alerts:
        """Deliver a message: judge it (Algorithms 4 and 5, before it counts), count it, remember its stamp in `L`."""
        covered = self.covered(keys, stamp)
        alerts = Alerts(covered, covered and self.witnessed(keys, stamp))
        self.advance(keys)
        self.L.append(stamp)
        return alerts


class Stamped(Protocol):
    """What a queue of messages has to know about one."""

    @property
    def keys(self) -> Keys: ...

    @property
    def stamp(self) -> Stamp: ...


M = TypeVar("M", bound=Stamped)


class Delivery(NamedTuple, Generic[M]):
    """A message that was delivered, and what the clock said about it."""

    message: M
    alerts: Alerts


Watch = tuple[list[int], int, int]
"""A vector, an entry of it that is too small for a message, and the value from which on it is not."""


class Pending(Generic[M]):
    """Messages that wait for their past, in order of arrival, and the clock that lets them go.

    The paper does not say in which order waiting messages are retried, nor that a process's own send can free one (it
    counts too, and can cover an entry). Here: after every delivery and every own send the queue is tried again from
    its start, until nothing in it is ready. Duplicates are the caller's business: each message may count only once.
    """

    def __init__(self, clock: ProbabilisticClock) -> None:
        self.clock = clock
        self._waiting: list[tuple[M, Watch]] = []

    def messages(self) -> list[M]:
        """What waits, in order of arrival."""
        return [message for message, _ in self._waiting]

    def receive(self, message: M) -> list[Delivery[M]]:
        """What can be delivered now that `message` is here: nothing, or it and what it set free."""
        if (watch := self.watch(message)) is not None:
            self._waiting.append((message, watch))
            return []
        return [self.deliver(message), *self.retry()]

    def remove(self, message: M) -> None:
        """Take it out, undelivered: the caller delivers it in another way, or not at all."""
        self._waiting = [entry for entry in self._waiting if entry[0] is not message]

    def retry(self) -> list[Delivery[M]]:
        """Deliver what is ready, first come first, from the start again after each, to a fixed point."""
        done: list[Delivery[M]] = []
        at = 0
        while at < len(self._waiting):
            message, (V, x, enough) = self._waiting[at]
            if V[x] >= enough:  # only then is the whole vector worth a look
                watch = self.watch(message)
                if watch is None:
                    del self._waiting[at]
                    done.append(self.deliver(message))
                    at = 0
                    continue
                self._waiting[at] = (message, watch)
            at += 1
        return done

    def watch(self, message: M) -> Watch | None:
        """What the message waits for; None: it is ready."""
        return self.clock.watch(message.keys, message.stamp)

    def deliver(self, message: M) -> Delivery[M]:
        """Count it."""
        return Delivery(message, self.clock.deliver(message.keys, message.stamp))
