"""Kernels that work by key: rows are brought together by key, and what belongs together then fits into a cache.

`exchange` is the one large move of data. After it `match` finds the writer of every read, and `group` lists the writers
and the reads of each key; both look at one bucket of keys after the other.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from whence.audit.history.kernels import (
    ABORTED,
    FINAL,
    FUTURE,
    INIT,
    INTERMEDIATE,
    INTERNAL,
    NOT_LAST,
    NOT_OWN,
    NOTHING,
    OVERWRITTEN,
    READ,
    THIN,
    Bytes,
    Ints,
    Longs,
    compiled,
    slot,
)  # fmt: skip

BUCKET: Final = 1 << 13
"""Rows of a bucket, about: 21 bytes each and a table of 64 KiB fit into the second-level cache."""
BUCKETS: Final = 1 << 11
"""At most so many: each is a stream that is written to at the same time."""


class Buckets(NamedTuple):
    """Rows by bucket of keys, in each bucket in their old order."""

    start: Longs
    """Where each bucket begins; one more entry for all."""
    key: Ints
    value: Longs
    txn: Ints
    place: Ints
    """Which operation of the history it is."""
    kind: Bytes
    """What it is, as `kernels.classify` says; `match` says more of reads."""
    source: Ints
    """Of external reads: who wrote what they saw, after `match`."""


def exchange(begin: Longs, key: Ints, value: Longs, what: Bytes, keys: int) -> Buckets:
    """External reads and all writes of the history, by bucket."""
    count = 1
    while count < BUCKETS and count * BUCKET < key.size:
        count *= 2
    shift = 0
    while (max(1, keys) - 1) >> shift >= count:
        shift += 1
    start = _count(key, what, shift, ((max(1, keys) - 1) >> shift) + 1)
    made = empty(start)
    _move(begin, key, value, what, shift, start[:-1].copy(), made.key, made.value, made.txn, made.place, made.kind)
    return made


def empty(start: Longs) -> Buckets:
    """Room for rows."""
    size = int(start[-1])
    key, txn, place, source = (np.empty(size, np.int32) for _ in range(4))
    return Buckets(start, key, np.empty(size, np.int64), txn, place, np.empty(size, np.uint8), source)


@compiled
def _count(key: Ints, what: Bytes, shift: int, count: int) -> Longs:
    start = np.zeros(count + 1, np.int64)
    for i in range(key.size):
        if what[i] != INTERNAL:
            start[(key[i] >> shift) + 1] += 1
    for b in range(count):
        start[b + 1] += start[b]
    return start


@compiled
def _move(
    begin: Longs, key: Ints, value: Longs, what: Bytes, shift: int, at: Longs, out_key: Ints, out_value: Longs,
    out_txn: Ints, out_place: Ints, out_kind: Bytes,
) -> None:  # fmt: skip
    for t in range(begin.size - 1):
        for i in range(begin[t], begin[t + 1]):
            if what[i] != INTERNAL:
                b = key[i] >> shift
                n = at[b]
                at[b] = n + 1
                out_key[n] = key[i]
                out_value[n] = value[i]
                out_txn[n] = t
                out_place[n] = i
                out_kind[n] = what[i]


@compiled
def match(
    start: Longs, key: Ints, value: Longs, txn: Ints, place: Ints, kind: Bytes, source: Ints, bad_key: Ints,
    bad_value: Longs, repeated: Longs,
) -> int:  # fmt: skip
    """The writer of every external read; classifies those that are wrong. `bad_*`: writes of aborted transactions.

    Of several writes of one value the first stays, unless only a later one is final. Returns how many are repeated; the
    places of the first of them are put into `repeated`.
    """
    largest = 0
    for b in range(start.size - 1):
        largest = max(largest, start[b + 1] - start[b])
    size = 16
    while size < 2 * largest:
        size *= 2
    table = np.empty(size, np.int32)
    count = 0
    for b in range(start.size - 1):
        low, high = start[b], start[b + 1]
        size = 16
        while size < 2 * (high - low):
            size *= 2
        mask = size - 1
        table[:size] = -1
        for n in range(low, high):
            if (kind[n] != FINAL and kind[n] != OVERWRITTEN) or value[n] == NOTHING:
                continue
            at = slot(key[n], value[n], mask)
            while table[at] >= 0 and (key[table[at]] != key[n] or value[table[at]] != value[n]):
                at = (at + 1) & mask
            if table[at] < 0:
                table[at] = n
                continue
            if count < repeated.size:
                repeated[count] = place[n]
            count += 1
            if kind[n] == FINAL and kind[table[at]] != FINAL:
                table[at] = n
        for n in range(low, high):
            source[n] = INIT
            if (kind[n] != READ and kind[n] != NOT_OWN) or value[n] == NOTHING:
                continue
            at = slot(key[n], value[n], mask)
            while table[at] >= 0 and (key[table[at]] != key[n] or value[table[at]] != value[n]):
                at = (at + 1) & mask
            w = table[at]
            if w < 0:
                kind[n] = THIN
                for j in range(bad_key.size):
                    if bad_key[j] == key[n] and bad_value[j] == value[n]:
                        kind[n] = ABORTED
            elif txn[w] == txn[n]:
                kind[n] = NOT_LAST if kind[n] == NOT_OWN else FUTURE
            elif kind[n] == READ:
                source[n] = txn[w]
                if kind[w] != FINAL:
                    kind[n] = INTERMEDIATE  # its writer is known all the same
    return count


@compiled
def bring_back(place: Ints, kind: Bytes, source: Ints, what: Bytes, writer: Ints) -> None:
    """What `match` found, by operation."""
    for n in range(place.size):
        if kind[n] != FINAL and kind[n] != OVERWRITTEN:
            writer[place[n]] = source[n]
            if kind[n] != READ:
                what[place[n]] = kind[n]


class ByKey(NamedTuple):
    """The writers and the external reads of each key."""

    begin: Longs
    """Of each key: its first writer; one more entry for all."""
    writers: Ints
    """By number."""
    reader: Ints
    key: Ints
    at: Ints
    writer: Ints
    """External reads, by key."""


@compiled
def _sizes(key: Ints, kind: Bytes, writers: Longs, reads: Longs) -> None:
    for n in range(key.size):
        if kind[n] == FINAL:
            writers[key[n] + 1] += 1
        elif kind[n] == READ or kind[n] == INTERMEDIATE:
            reads[key[n] + 1] += 1
    for x in range(writers.size - 1):
        writers[x + 1] += writers[x]
        reads[x + 1] += reads[x]


@compiled
def _fill(
    key: Ints, txn: Ints, place: Ints, kind: Bytes, source: Ints, begin: Longs, to_writer: Longs, to_read: Longs,
    writers: Ints, reader: Ints, read_key: Ints, at: Ints, writer: Ints,
) -> None:  # fmt: skip
    for n in range(key.size):
        x = key[n]
        if kind[n] == FINAL:
            writers[to_writer[x]] = txn[n]
            to_writer[x] += 1
        elif kind[n] == READ or kind[n] == INTERMEDIATE:
            r = to_read[x]
            to_read[x] = r + 1
            reader[r] = txn[n]
            read_key[r] = x
            at[r] = place[n] - begin[txn[n]]
            writer[r] = source[n]


def group(rows: Buckets, begin: Longs, keys: int) -> ByKey:
    """The rows of each key together, after `match`."""
    writers, reads = np.zeros(keys + 1, np.int64), np.zeros(keys + 1, np.int64)
    _sizes(rows.key, rows.kind, writers, reads)
    size = int(reads[-1])
    made = ByKey(writers, np.empty(int(writers[-1]), np.int32), *(np.empty(size, np.int32) for _ in range(4)))
    _fill(
        rows.key, rows.txn, rows.place, rows.kind, rows.source, begin, writers[:-1].copy(), reads[:-1].copy(),
        made.writers, made.reader, made.key, made.at, made.writer,
    )  # fmt: skip
    return made


@compiled
def ranked(begin: Longs, writers: Ints, rank: Ints) -> Ints:
    """The writers of each key by rank."""
    out = writers.copy()
    for x in range(begin.size - 1):
        low, high = begin[x], begin[x + 1]
        if high - low > 24:
            out[low:high] = out[low:high][np.argsort(rank[out[low:high]])]
            continue
        for n in range(low + 1, high):
            t = out[n]
            mine = rank[t]
            i = n - 1
            while i >= low and rank[out[i]] > mine:
                out[i + 1] = out[i]
                i -= 1
            out[i + 1] = t
    return out
