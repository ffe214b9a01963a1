"""Replicas without a network: every operation, every kind of bad bytes; the order of arrival does not matter."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.house.imports import impurities
from tests.live.objects.events import at, event
from whence.core.clock import Entry, EventId, Frame, Incarnation, precedes
from whence.errors import RemoteError, UsageError
from whence.live.objects import (
    BadOperation,
    Counter,
    Document,
    Full,
    Objects,
    Registers,
    container,
    document,
    events_of,
    kernel,
    registers,
    stamp,
)
from whence.live.objects.kernel import PREFIX, Add, Alter, Delete, Edit, Set, decode, encode

OBJECTS = Path(__file__).parents[3] / "src" / "whence" / "live" / "objects"


# -- stamps --------------------------------------------------------------------------------------------------------

entries: st.SearchStrategy[Entry] = st.tuples(
    st.builds(lambda e, t, c: e << 48 | t << 24 | c, st.integers(0, 3), st.integers(0, 2), st.integers(0, 3)),
    st.integers(0, 9),
)
vectors = st.integers(1, 4).flatmap(lambda n: st.tuples(*[st.lists(entries, min_size=n, max_size=n)] * 2))


@given(vectors)
@settings(max_examples=200)
def test_a_stamp_never_contradicts_causal_order(pair: tuple[list[Entry], list[Entry]]) -> None:
    a, b = (tuple(v) for v in pair)
    later = tuple(map(max, a, b))
    mine, theirs = (stamp(EventId(9, 1, 1, "z"), a), stamp(EventId(0, 1, 1, "a"), later))
    if precedes(a, later):
        assert mine < theirs
    if precedes(a, b):
        assert mine < stamp(EventId(0, 0, 0, ""), b)


def test_the_events_of_a_frame_have_the_stamps_of_their_timestamps() -> None:
    inc = Incarnation(2, 1, 5).packed
    frame = Frame.of(1, inc, 7, "a#1", ((inc, 3), (inc, 6), (0, 0)), [b"x", b"y", b"z"])
    ids = [EventId.parse(name) for name in frame.names()]
    assert [e.stamp for e in events_of(frame, True)] == [stamp(i, frame.timestamp(i.seq)) for i in ids]
    assert [(e.payload, e.over_gap) for e in events_of(frame, True)] == [(b"x", True), (b"y", True), (b"z", True)]
    assert events_of(frame)[1].stamp.event == ids[1]


# -- registers -------------------------------------------------------------------------------------------------------


def test_registers_hold_json_and_bytes() -> None:
    objects = Objects()
    r = objects.registers("world")
    values = {"a": None, "b": True, "c": -(2**63), "d": 1.5, "e": "é", "f": b"\0", "g": [1, [2]], "h": {"x": {"y": []}}}
    for n, (key, value) in enumerate(values.items(), 1):
        assert objects.apply(event(r.set(key, value), n))
    assert r.items() == sorted(values.items()) and len(r) == 8 and list(r) == list("abcdefgh")
    objects.apply(event(r.delete("a"), 9))
    assert "a" not in r and r.get("a", 7) == 7 and r["b"] is True
    with pytest.raises(KeyError):
        r["a"]
    assert objects.stats.applied == 9


def test_a_deletion_wins_over_what_is_older_and_comes_later() -> None:
    r = Registers("r")
    assert not r.apply(at(7).stamp, decode(r.delete("k")))
    assert not r.apply(at(3).stamp, decode(r.set("k", 1)))
    assert "k" not in r and r.written("k") == at(7).stamp
    assert r.apply(at(8).stamp, decode(r.set("k", 2))) and r["k"] == 2
    t = Registers("r")
    t.restore(r.state())
    assert t.state() == r.state() and t.size == r.size > 0


def test_deletions_are_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registers, "MAX_TOMBSTONES", 8)
    r = Registers("r")
    for n in range(1, 12):
        r.apply(at(n).stamp, decode(r.delete(f"k{n}")))
    assert r.forgotten == 3 and r.written("k3") is None and r.written("k4") is not None
    assert r.size == sum(registers._ROW + len(k) + 3 for k in [f"k{n}" for n in range(4, 12)])


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(0, 9), st.integers(0, 2)), max_size=12),
    st.randoms(),
)
def test_registers_converge_in_any_order(writes: list[tuple[str, int | None, int]], rng: random.Random) -> None:
    r = Registers("r")
    ops = [
        (at(n // 2 + 1, ticket).stamp, decode(r.delete(k) if v is None else r.set(k, v)))
        for n, (k, v, ticket) in enumerate(writes)
    ]
    ops = list({s: (s, o) for s, o in ops}.values())
    for s, o in ops:
        r.apply(s, o)
    rng.shuffle(ops)
    other = Registers("r")
    cut = rng.randint(0, len(ops))
    for s, o in ops[:cut]:
        other.apply(s, o)
    late = Registers("r")
    late.restore(other.state())
    for s, o in ops[cut:] + ops[:cut]:  # and what a replica has had already changes nothing
        late.apply(s, o)
    assert late.state() == r.state()
    assert late.size == r.size


# -- counter ---------------------------------------------------------------------------------------------------------


def test_a_counter_is_the_sum() -> None:
    objects = Objects()
    c = objects.counter("hits")
    for n, amount in enumerate((1, -5, 2**62, 2**62, 0), 1):
        objects.apply(event(c.add(amount), n))
    assert c.value == 2**63 - 4
    d = Counter("hits")
    d.restore(c.state())
    assert d.value == c.value
    with pytest.raises(UsageError):
        c.add(2**63)
    for bad in (b"", b"x", b"1" * 61, b"1.5", b"--1"):
        with pytest.raises(BadOperation):
            d.restore(bad)
    assert d.value == c.value


# -- what peers may do wrong -----------------------------------------------------------------------------------------

GOOD = [
    encode(Set("o", "k", msgspec.Raw(b"\x01"))),
    encode(Delete("o", "k")),
    encode(Add("o", 3)),
]


def malformed() -> list[bytes]:
    pack = msgspec.msgpack.encode
    deep = b"\x91" * 5000 + b"\x01"
    bodies = [
        b"",
        b"\xc1",
        pack([99, "o"]),
        pack({"name": "o"}),
        pack([1, "o", "k"]),
        pack([3, "o", 1, "more"]),
        pack([3, "o", 2**63]),
        pack([3, "", 1]),
        pack([3, "o" * 256, 1]),
        pack([2, "o", 7]),
        pack([1, "o", "k", "v" * kernel.MAX_VALUE]),
        pack([4, "o", 0, 1, b"u"]),
        pack([4, "o", 1, 1, b""]),
        pack([1, "o", "k"])[:-1] + deep,
        b"\x94\x01\xa1o\xa1k" + deep,
        b"\x94\x01\xa1o\xa1k\xc7\x01\x05\x00",  # a value of a type of its own
        b"\x94\x01\xa1o\xa1k\xd6\xff\x00\x00\x00\x01",  # a time
        GOOD[2][2:] + b"\x00",
    ]
    return [PREFIX + b for b in bodies] + [b"\xc1", b"\xc1\x02" + GOOD[2][2:]]


@pytest.mark.parametrize("payload", malformed(), ids=lambda p: p[:12].hex())
def test_bad_operations_are_counted_and_change_nothing(payload: bytes) -> None:
    objects = Objects()
    for n, good in enumerate(GOOD[:3], 1):
        objects.apply(event(good, n))
    before = objects.state()
    assert objects.apply(event(payload, 9, owner="liar#1"))
    assert objects.stats.malformed == 1 and "liar#1" in objects.last_error
    assert objects.state() == before
    objects.apply(event(GOOD[2], 10))
    assert objects.counter("o").value == 6
    assert issubclass(BadOperation, RemoteError)


@given(st.sampled_from(GOOD), st.data())
def test_no_bytes_break_the_replica(good: bytes, data: st.DataObject) -> None:
    objects = Objects()
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(1, len(bad) - 1))] = data.draw(st.integers(0, 255))
    objects.apply(event(bytes(bad), 1))
    objects.apply(event(data.draw(st.binary(max_size=40)), 2))
    copy = Objects()
    copy.restore(objects.state())
    assert copy.state() == objects.state()


def test_what_peers_would_refuse_is_not_published() -> None:
    r = Objects().registers("r")
    for bad in (object(), 2**70, {1, 2}.__iter__(), "v" * kernel.MAX_VALUE):
        with pytest.raises(UsageError):
            r.set("k", bad)  # type: ignore[arg-type]
    for name in ("", "k" * 256, "\ud800"):
        with pytest.raises(UsageError):
            r.set(name, 1)
        with pytest.raises(UsageError):
            Objects().counter(name).add(1)


def test_an_application_may_publish_events_of_its_own() -> None:
    objects = Objects()
    assert [objects.apply(event(p, 1)) for p in (b"", b"hello", b"\x95\x01")] == [False] * 3
    assert objects.stats.foreign == 3 and not objects.stats.malformed


# -- the container ---------------------------------------------------------------------------------------------------


def test_a_snapshot_replaces_everything_and_keeps_the_handles() -> None:
    a, b = Objects(), Objects()
    changes: list[container.Change] = []
    for n, payload in enumerate((a.counter("x").add(2), a.registers("r").set("k", 1)), 1):
        a.apply(event(payload, n))
    mine, other = b.counter("x"), b.counter("y")
    b.apply(event(mine.add(50), 1))
    b.apply(event(other.add(50), 2))
    b.listen(changes.append)
    b.restore(a.state())
    assert (mine.value, other.value) == (2, 0) and b.registers("r")["k"] == 1
    assert {(c.kind, c.name, c.event) for c in changes} >= {("counter", "x", None), ("counter", "y", None)}
    b.restore(b"")
    assert mine.value == 0 and b.stats.restored == 2


@pytest.mark.parametrize(
    "bad", [b"\xff", b"\x92\x02\x90", msgspec.msgpack.encode([1, [["counter", "x", 0, None, None, b"z"]]])]
)
def test_a_bad_snapshot_is_refused_whole(bad: bytes) -> None:
    objects = Objects()
    objects.apply(event(objects.counter("x").add(2), 1))
    before = objects.state()
    with pytest.raises(BadOperation):
        objects.restore(bad)
    assert objects.state() == before


def test_changes_are_told_until_told_not_to() -> None:
    objects = Objects()
    seen: list[container.Change] = []
    stop = objects.listen(seen.append)
    r = objects.registers("r")
    objects.apply(event(r.set("k", 1), 2))
    objects.apply(event(r.set("k", 0), 1))  # loses: no change
    objects.apply(event(objects.counter("c").add(1), 3))
    assert [(c.kind, c.name, c.key) for c in seen] == [("registers", "r", "k"), ("counter", "c", "")]
    assert seen[0].event == at(2).stamp.event
    stop()
    stop()
    objects.apply(event(r.set("k", 5), 9))
    assert len(seen) == 2


def test_publishers_see_that_it_is_full_and_receivers_have_a_bound_too() -> None:
    objects = Objects(limit=2000)
    r = objects.registers("r")
    with pytest.raises(Full):
        for n in range(1, 1000):
            objects.apply(event(objects.check_room(r.set(f"k{n}", "v" * 50)), n))
    assert 10 < len(r) < 40
    for n in range(1000, 1100):
        objects.apply(event(r.set(f"k{n}", "v" * 50), n))
    assert objects.stats.refused > 40 and len(objects.state()) <= objects.size < 5000
    for n, key in enumerate(r, 2000):
        objects.apply(event(r.delete(key), n))
    assert len(r) == 0 and len(objects.state()) <= objects.size
    copy = Objects()
    copy.restore(objects.state())
    assert copy.size == objects.size


def test_the_number_of_objects_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "MAX_OBJECTS", 2)
    objects = Objects()
    for n, name in enumerate("abc", 1):
        objects.apply(event(Counter(name).add(1), n))
    assert objects.names("counter") == ["a", "b"] and objects.stats.refused == 1
    with pytest.raises(Full):
        objects.counter("c")


# -- the house -------------------------------------------------------------------------------------------------------


def test_all_but_the_live_part_is_pure() -> None:
    pure = [p for p in OBJECTS.glob("*.py") if p.name != "live.py"]
    assert len(pure) >= 5
    for path in pure:
        assert not impurities(ast.parse(path.read_text(encoding="utf-8"))), path


def test_pycrdt_is_needed_for_documents_only() -> None:
    code = """
import sys
sys.modules["pycrdt"] = None
from whence.live.objects import Objects
from whence.errors import UsageError
objects = Objects()
objects.counter("c"), objects.registers("r")
try:
    objects.document("d")
except UsageError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install whence[document]" in done.stdout


def test_an_update_needs_a_document() -> None:
    with pytest.raises(BadOperation):
        Registers("r").apply(at(1).stamp, Add("r", 1))
    with pytest.raises(BadOperation):
        Counter("c").apply(at(1).stamp, Edit("c", 1, 1, b"u"))
    assert document.client_of("a", "b") != document.client_of("ab", "")
    assert Document.kind == "document"


def test_the_bytes_of_the_operations_stay() -> None:
    """Tags and fields are only ever appended: what is published today must be understood for good."""
    golden = {
        "c1019401a172a16bc3": Set("r", "k", msgspec.Raw(b"\xc3")),
        "c1019302a172a16b": Delete("r", "k"),
        "c1019303a163fd": Add("c", -3),
        "c1019504a1640901c40155": Edit("d", 9, 1, b"U"),
        "c1019505a1640901c40155": Alter("d", 9, 1, b"U"),
    }
    for data, operation in golden.items():
        payload = bytes.fromhex(data)
        assert encode(operation) == payload and decode(payload) == operation


def test_a_set_has_what_was_added_last() -> None:
    objects = Objects()
    tags = objects.set("tags")
    for number, payload in enumerate((tags.add("b"), tags.add("a"), tags.discard("b"), tags.discard("c")), 1):
        objects.apply(event(payload, number))
    assert list(tags) == ["a"] and "b" not in tags and len(tags) == 1
    objects.apply(event(tags.add("b"), 5))
    late = Objects()
    late.restore(objects.state())
    assert list(late.set("tags")) == ["a", "b"]
