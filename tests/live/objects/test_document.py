"""The shared document without a network: drafts, positions, updates in any order, updates that are none."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import reduce

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.live.objects.events import event
from whence.errors import UsageError
from whence.live.objects import Objects, document
from whence.live.objects.kernel import PREFIX, Edit, decode, encode

pytest.importorskip("pycrdt")


def test_the_draft_shows_at_once_what_the_text_shows_when_delivered() -> None:
    objects = Objects("a#1")
    d = objects.document("notes")
    first, second = d.insert(0, "hällo 😀"), d.splice(1, 1, "e")
    assert (d.draft, d.text) == ("hello 😀", "")
    objects.apply(event(first, 1))
    assert (d.draft, d.text) == ("hello 😀", "hällo 😀")
    objects.apply(event(second, 2))
    objects.apply(event(d.delete(5, 2), 3))
    assert d.draft == d.text == "hello"
    objects.apply(event(d.splices([(0, 1, "J"), (5, 0, "!"), (6, 0, "")]), 4))
    assert d.text == "Jello!" and d.unsent() is None
    for bad in ((7, 0), (-1, 1), (0, 7), (0, -1)):
        with pytest.raises(UsageError):
            d.splice(*bad)
    assert d.draft == "Jello!"


def test_an_edit_of_nothing_is_an_operation_of_nothing() -> None:
    objects = Objects("a#1")
    d = objects.document("notes")
    objects.apply(event(d.insert(0, "x"), 1))
    objects.apply(event(d.splice(0), 2))
    objects.apply(event(d.insert(1, "y"), 3))
    assert d.text == "xy" and not objects.stats.malformed


def test_whoever_edits_needs_an_identity() -> None:
    objects = Objects()
    d = objects.document("notes")
    with pytest.raises(UsageError, match="member id"):
        d.insert(0, "x")
    objects.me = "a#1"
    assert d.insert(0, "x") and d.client == Objects("a#1").document("notes").client
    assert d.client != Objects("a#2").document("notes").client


def test_a_publish_that_failed_is_made_good_by_the_next() -> None:
    mine, theirs = Objects("a#1"), Objects("b#1")
    d, e = mine.document("notes"), theirs.document("notes")
    for n, payload in enumerate((d.insert(0, "one "), theirs.document("notes").insert(0, "zero ")), 1):
        owner = "ab"[n - 1] + "#1"
        for objects in (mine, theirs):
            objects.apply(event(payload, n, owner=owner))
    d.insert(len(d.draft), "lost ")
    d.delete(0, 1)
    again = d.unsent()
    assert again is not None
    after = d.insert(len(d.draft), "after")
    for n, payload in enumerate((again, after), 3):
        for objects in (mine, theirs):
            objects.apply(event(payload, n))
    assert e.text == d.text == d.draft and e.text.endswith("lost after")
    assert d.unsent() is None


Log = list[tuple[str, bytes, int]]
"""Of each update: its editor, the payload, and how many of the log its editor had seen."""


def typed(objects: Objects, rng: random.Random) -> bytes:
    d = objects.document("d")
    long = len(d.draft)
    at_ = rng.randint(0, long)
    cut = rng.randint(0, min(2, long - at_)) if rng.random() < 0.4 else 0
    return d.splice(at_, cut, rng.choice(("", "é", "ab", "xyz")) if cut else "q😀")


def filed(objects: Objects, rng: random.Random) -> bytes:
    d, name = objects.json("d"), rng.choice("abc")
    items = d.draft.get("items", [])
    some = rng.choice((None, True, "é", 7, -2.5, [1, {"x": []}], {"y": {"z": 2}}))
    match rng.randrange(6):
        case 0:
            return d.set(["maps", name, rng.choice("xy")], some)
        case 1 if items:
            return d.insert(["items", rng.randint(0, len(items))], some, name)
        case 2 if items:
            return d.delete(["items", rng.randrange(len(items))])
        case 3 if items:
            return d.set(["items", rng.randrange(len(items))], some)
        case 4 if name in d.draft.get("maps", {}):
            return d.delete(["maps", name])
    return d.append(["items"], name, some)


Write = Callable[[Objects, random.Random], bytes]


def history(rng: random.Random, write: Write = typed, editors: int = 3, edits: int = 14) -> tuple[Log, list[Objects]]:
    """What editors write, each seeing now and then what the others have written."""
    all_ = [Objects(f"e{i}#1") for i in range(editors)]
    log: Log = []
    had = [0] * editors

    def catch_up(j: int) -> None:
        for n in range(had[j], len(log)):
            all_[j].apply(event(log[n][1], n + 1, owner=log[n][0]))
        had[j] = len(log)

    for _ in range(edits):
        i = rng.randrange(editors)
        log.append((all_[i].me, write(all_[i], rng), had[i]))
        if rng.random() < 0.6:
            catch_up(rng.randrange(editors))
    for j in range(editors):
        catch_up(j)
    return log, all_


def causal_shuffle(log: Log, rng: random.Random) -> list[int]:
    """Some order in which a causal member might deliver."""
    order: list[int] = []
    left = dict.fromkeys(range(len(log)))
    while left:
        ready = [n for n in left if not any(m < log[n][2] or log[m][0] == log[n][0] for m in left if m < n)]
        order.append(rng.choice(ready))
        del left[order[-1]]
    return order


@pytest.mark.parametrize("write", [typed, filed])
@given(st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_documents_converge_in_every_causal_order_with_a_snapshot_in_between(write: Write, rng: random.Random) -> None:
    log, editors = history(rng, write)
    shown: list[Callable[[Objects], object]] = [lambda o: o.document("d").text, lambda o: o.document("d").draft]
    if write is filed:
        shown = [lambda o: json.dumps(o.json("d").value), lambda o: json.dumps(o.json("d").draft)]
    texts = {show(o) for o in editors for show in shown}
    order = causal_shuffle(log, rng)
    early, late = Objects("w#1"), Objects("v#1")
    cut = rng.randint(0, len(order))
    for n in order[:cut]:
        early.apply(event(log[n][1], n + 1, owner=log[n][0]))
    late.restore(early.state())
    for n in order[cut:]:
        late.apply(event(log[n][1], n + 1, owner=log[n][0]))
    assert texts == {shown[0](late)} and not late.document("d").dropped and not late.json("d").dropped


def test_json_is_what_was_written_or_a_usage_error() -> None:
    objects, other = Objects("a#1"), Objects("b#1")
    board = objects.json("board")
    done: list[bytes] = []

    def do(payload: bytes) -> None:
        done.append(payload)
        for each in (objects, other):
            assert each.apply(event(payload, len(done)))

    do(board.append(["tasks"], "milk", {"name": "tea", "tags": ["hot"]}))
    do(board.append(["tasks", 1, "tags"], "green"))
    do(board.insert(["tasks", 0], 1, None))
    do(board.set(["owner", "name"], "ann"))
    do(board.set(["tasks", 0], 2.5))
    do(board.delete(["tasks", 2]))
    assert other.json("board").value == board.draft == board.value
    assert board.value == {"tasks": [2.5, None, {"name": "tea", "tags": ["hot", "green"]}], "owner": {"name": "ann"}}
    wrong: list[Callable[[], bytes]] = [
        lambda: board.set([], 1),
        lambda: board.set(["tasks", 9], 1),
        lambda: board.set(["tasks", "x"], 1),
        lambda: board.set(["owner", "name", "first"], 1),
        lambda: board.set(["x"], 2**60),
        lambda: board.set(["x"], {1: 2}),
        lambda: board.set(["x"], b"bytes"),
        lambda: board.set(["x"], float("nan")),
        lambda: board.set(["x"], reduce(lambda inner, _: [inner], range(100), [])),
        lambda: board.delete(["nothing"]),
        lambda: board.insert(["tasks", 7], 1),
        lambda: board.insert(["owner"], 1),
        lambda: board.append(["owner"], 1),
        lambda: board.append(["new", 0], 1),
    ]
    for call in wrong:
        with pytest.raises(UsageError):
            call()
    do(board.set(["x"], "still good"))
    assert other.json("board").value == board.value and board.value["x"] == "still good"
    fresh = Objects("c#1")
    fresh.restore(other.state())
    assert fresh.json("board").value == board.value and fresh.names("json") == ["board"]


def test_an_edit_that_raises_leaves_no_trace() -> None:
    """Its first half was in the draft, and in no operation: what was typed after it never showed at the others."""
    objects, other = Objects("a#1"), Objects("b#1")
    d = objects.document("d")
    with pytest.raises(UsageError):
        d.splices([(0, 0, "half"), (99, 1, "")])
    payload = d.insert(0, "whole")
    for each in (objects, other):
        each.apply(event(payload, 1))
    assert d.text == d.draft == other.document("d").text == "whole"


def test_random_damage_never_breaks_the_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of these make the library panic half way; the text is then as it was before."""
    monkeypatch.setattr(document, "_LOG", 8)
    rng = random.Random(5)
    log, editors = history(rng, edits=60)
    objects = Objects("w#1")
    for n, (owner, payload, _) in enumerate(log, 1):
        objects.apply(event(payload, n, owner=owner))
    d, good = objects.document("d"), objects.state()
    d.insert(0, "draft ")
    for n in range(1500):
        update = bytearray(decode(rng.choice(log)[1]).update)  # type: ignore[union-attr]
        for _ in range(rng.randint(1, 3)):
            update[rng.randrange(len(update))] = rng.randrange(256)
        before = d.text
        bad = objects.stats.malformed
        objects.apply(event(encode(Edit("d", 1, 1, bytes(update))), n, owner=f"liar{n}#1"))
        assert objects.stats.malformed == bad or d.text == before
    assert objects.stats.malformed > 300
    assert isinstance(d.draft, str) and isinstance(objects.state(), bytes)
    objects.restore(good)
    assert d.text == editors[0].document("d").text


@pytest.mark.parametrize("name", ["PanicException", "KeyboardInterrupt"])
def test_a_half_applied_update_is_undone_but_an_interrupt_is_not_swallowed(name: str) -> None:
    objects = Objects("a#1")
    d = objects.document("d")
    objects.apply(event(d.insert(0, "text"), 1))
    error = type(name, (BaseException,), {}) if name == "PanicException" else KeyboardInterrupt

    class Half:
        """Applies half of an update, then breaks."""

        def __init__(self, doc: object) -> None:
            self.doc = doc

        def apply_update(self, update: bytes) -> None:
            d._root.insert(0, "half")
            raise error

    whole = d._doc
    d._doc = Half(whole)  # type: ignore[assignment]
    payload = encode(Edit("d", 9, 1, b"\0\0"))
    if name == "KeyboardInterrupt":
        with pytest.raises(KeyboardInterrupt):
            objects.apply(event(payload, 2, owner="b#1"))
        return
    objects.apply(event(payload, 2, owner="b#1"))
    assert objects.stats.malformed == 1 and d.text == "text"
    objects.apply(event(d.insert(4, "!"), 3))
    assert d.text == "text!"


def test_a_lost_update_is_seen() -> None:
    writer, lossy = Objects("a#1"), Objects("b#1")
    d = writer.document("d")
    payloads = [d.insert(i, c) for i, c in enumerate("abc")]
    for n, payload in enumerate(payloads, 1):
        if n != 2:
            lossy.apply(event(payload, n)._replace(over_gap=n == 3))
    assert lossy.document("d").text == "a" and lossy.document("d").dropped == 1 and lossy.stats.over_gap == 1


def test_the_size_follows_the_document_not_its_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "_LOG", 16)
    objects = Objects("a#1")
    d = objects.document("d")
    sent = 0
    for n in range(400):
        payload = d.insert(0, "x") if n % 2 == 0 else d.delete(0)
        sent += len(payload) - len(PREFIX)
        objects.apply(event(payload, n + 1))
    assert len(objects.state()) <= objects.size < sent / 2


def test_a_draft_begun_anew_has_another_client_id() -> None:
    """Yjs numbers what a client writes. Were numbers used twice, the two replicas would show different texts."""
    mine, theirs = Objects("a#1"), Objects("b#1")
    d = mine.document("d")
    state = mine.state()
    flying = d.insert(0, "published, not delivered yet")
    before = d.client
    mine.restore(state)
    assert d.client != before and d.draft == ""
    after = d.insert(0, "other")
    for n, payload in enumerate((flying, after), 1):
        for objects in (mine, theirs):
            objects.apply(event(payload, n))
    text = theirs.document("d").text
    assert d.text == d.draft == text and "not delivered" in text and "other" in text
