"""Several clusters as one, for the audit: did every member of every cluster see causes before effects?

A trace is about one cluster, and in each of them the copy of an event is an event of its own, published by the bridge.
The bridge notes which is which (`crossings.ndjson` beside its trace). Here every copy gets the name of the event that
it is a copy of, and the bridge's publishing of it counts as no publishing: what remains is the trace of one group whose
members are those of all clusters, with one publisher for each event. The audit needs to know nothing of bridges.

Events that do not cross are in it, too, since they may be a reason for one that does; they are delivered nowhere else.
So all members are said to promise causal order: nothing before its causes, nothing twice. What is missing, and who owns
which ticket, is judged in each cluster by itself; here what follows an event of another cluster that stayed there is
"over a gap".
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from whence.audit.trace.read import read
from whence.audit.trace.schema import Row
from whence.audit.trace.write import open_trace
from whence.errors import TraceError, UsageError

CROSSINGS = "crossings.ndjson"


class Crossing(msgspec.Struct, frozen=True, rename={"copy": "as"}):
    """The bridge has brought an event of `cluster` across: it was published in `to` under another id."""

    cluster: str
    event: str
    to: str
    copy: str


Copies = dict[tuple[str, str], tuple[str, str]]
"""(cluster, id) of a copy -> of what it is a copy of, which may be a copy itself."""

_encode = msgspec.json.Encoder().encode_lines
_decoder = msgspec.json.Decoder(Crossing)


def lines(crossings: Iterable[Crossing]) -> str:
    """As they are written."""
    return _encode(list(crossings)).decode()


def copies_of(directory: str | os.PathLike[str]) -> Copies:
    """What the bridges have noted in a directory. A last line that a kill has cut short is passed over."""
    path = Path(directory) / CROSSINGS
    *whole, _ = path.read_bytes().split(b"\n") if path.exists() else [b""]
    copies: Copies = {}
    for number, line in enumerate(whole, 1):
        try:
            crossing = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise TraceError(f"{path}:{number}: no crossing: {error}") from None
        copies[crossing.to, crossing.copy] = (crossing.cluster, crossing.event)
    return copies


def owner_of(event: str) -> str:
    """The member that published the event of this id: `...@owner`, or `owner/seq` without tickets."""
    owner, slash, seq = event.rpartition("/")
    return owner if slash and seq.isdecimal() else event.partition("@")[2]


def merged(rows: Iterable[Row], copies: Copies, name: str = "all") -> Iterator[Row]:
    """The rows of several clusters as those of one, `name`, in one run: the first one's. Ids and members are told by
    their clusters. Of an event that several servers of a bridge have brought a member has its first copy: the second
    one its reader drops."""
    run = None
    brought = Counter((to, original) for (to, _), original in copies.items())
    had: set[tuple[str, str, str]] = set()
    for row in rows:
        run = run or row.run
        home, event = row.cluster, row.event or ""
        several = brought[home, copies[home, event]] > 1 if (home, event) in copies else False
        while (home, event) in copies:
            home, event = copies[home, event]
        crossed = (home, event) != (row.cluster, row.event or "")
        if several and row.kind == "deliver":
            if (row.cluster, row.member, event) in had:
                continue
            had.add((row.cluster, row.member, event))
        told = msgspec.structs.replace(
            row,
            run=run,
            cluster=name,
            member=f"{row.cluster}/{row.member}",
            event=f"{home}/{event}" if row.event else None,
            origin=f"{home}/{owner_of(event) if crossed else row.origin}" if row.origin else None,
            peer=" ".join(f"{row.cluster}/{peer}" for peer in row.peer.split()) if row.peer else None,
            token=f"{row.cluster}/{row.token}" if row.token else None,
            order="causal" if row.order else None,
            ticket=None,  # each cluster has its own
        )
        if row.kind == "ticket" or (crossed and row.kind == "publish"):
            told = msgspec.structs.replace(told, kind="step", event=None, origin=None, clock=None, bytes=None)
        yield told


def merge(directory: str | os.PathLike[str], out: str | os.PathLike[str], name: str = "all") -> int:
    """Write the traces under a directory, of all clusters, as one trace: a `.jsonl` or `.parquet` file, for `whence
    audit`. Returns how many copies were found."""
    if Path(out).exists():  # a writer of lines would go on at its end
        raise UsageError(f"{out} is there already")
    copies = copies_of(directory)
    with open_trace(out) as writer:
        for row in merged(read(directory), copies, name):
            writer.append(row)
    return len(copies)
