"""Two people typing into one document, as recorded: replayed through members with loss, four more only watching."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.core.member.net import MS
from tests.data import recorded
from tests.live.objects.net import ObjectsNet
from tests.live.objects.recordings import small
from whence.errors import UsageError
from whence.lab.replay import NAME, Author, Recording, load, synthetic
from whence.live.objects import events_of

pytest.importorskip("pycrdt")


LIVE = {"mode": "eager", "latency_ns": 5 * MS, "rate": 64.0, "buffer": 4096, "time_to_recover": 5.0}
"""As in a live cluster: a causal member gives nothing up while it can still be had."""


def replay(net: ObjectsNet, recording: Recording) -> None:
    """The first members are the authors."""
    authors = [Author(recording, i, net.name(i)) for i in range(len(recording.authors))]
    heard = [0] * len(authors)
    idle = 0
    while not all(a.done for a in authors):
        wrote = False
        for i, author in enumerate(authors):
            frames = net[i].frames
            while heard[i] < len(frames):
                for event in events_of(frames[heard[i]]):
                    author.hear(event)
                heard[i] += 1
            if net[i].member.may_publish and (operations := author.write()):
                assert net.post(i, *operations)
                wrote = True
        idle = 0 if wrote else idle + 1
        assert idle < 20_000, "the authors wait for each other for ever"
        net.run(2 * MS)
    net.settle()


@pytest.mark.long
@pytest.mark.parametrize("order", ["causal", "reliable"])
def test_everybody_ends_with_the_recorded_text(order: str) -> None:
    recording = load(recorded("friendsforever.json.gz"))
    assert [len(a) for a in recording.authors] == [12124, 13954]
    ends_with_its_text(recording, order)


@pytest.mark.parametrize("order", ["causal", "reliable"])
def test_everybody_ends_with_the_synthetic_text(order: str) -> None:
    ends_with_its_text(synthetic(transactions=2000), order)


def test_a_synthetic_session_is_concurrent_and_the_same_for_a_seed() -> None:
    session = synthetic(seed=3, authors=3, transactions=300)
    assert session == synthetic(seed=3, authors=3, transactions=300) != synthetic(seed=4, authors=3, transactions=300)
    assert sum(map(len, session.authors)) == 300 and len(session.final) > 100
    for a, mine in enumerate(session.authors):
        assert [txn.needs[a] for txn in mine] == list(range(len(mine)))
    first, second = session.authors[0], session.authors[1]
    concurrent = [
        (n, m) for n, x in enumerate(first) for m, y in enumerate(second) if x.needs[1] <= m and y.needs[0] <= n
    ]
    assert len(concurrent) > 100


def ends_with_its_text(recording: Recording, order: str) -> None:
    total = sum(map(len, recording.authors))
    net = ObjectsNet([order] * 6, loss=0.05, jitter=4, tickets=2, seed=11, **LIVE)
    replay(net, recording)
    for holder in net.holders():
        document = holder.objects.document(NAME)
        assert document.text == recording.final, holder.member.me
        assert not document.dropped and not holder.objects.stats.malformed
        assert holder.objects.stats.applied == total
    assert sum(h.member.stats()["order.recovered"] for h in net.holders()) > total // 300, (
        "the loss must have been felt"
    )


def test_the_authors_hold_back_what_came_early() -> None:
    """Without holding back, positions would be wrong: author 1 never saw what author 0 wrote in the meantime."""
    recording = small()
    zero = Author(recording, 0, "a#1")
    assert len(zero.write(most=2)) == 2
    assert len(zero.write()) == 1, "the fourth waits for author 1"
    assert zero.write() == [] and not zero.done


@pytest.mark.parametrize("data", [b"{}", b"\x1f\x8bno", b"", json.dumps({"txns": 1}).encode()])
def test_a_file_that_is_none_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=r"trace\.json"):
        load(path)


def test_a_small_file_is_read(tmp_path: Path) -> None:
    txns = [
        {"parents": [], "agent": 0, "patches": [[0, 0, "a"]], "numChildren": 2},
        {"parents": [0], "agent": 1, "patches": [[1, 0, "b"]]},
        {"parents": [0], "agent": 0, "patches": [[0, 1, ""]]},
        {"parents": [1, 2], "agent": 1, "patches": []},
    ]
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"endContent": "b", "numAgents": 2, "txns": txns}).encode()))
    recording = load(path)
    assert [[t.needs for t in author] for author in recording.authors] == [[(0, 0), (1, 0)], [(1, 0), (2, 1)]]
    txns[2]["parents"] = []
    path.write_bytes(gzip.compress(json.dumps({"endContent": "b", "numAgents": 2, "txns": txns}).encode()))
    with pytest.raises(UsageError, match="transaction 2"):
        load(path)
