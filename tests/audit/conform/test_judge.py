"""The kit's verdict on a history, without processes: by example, and against the simulator's oracle."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.audit.conform.judge import NodeHistory, Reported, explain, judge
from whence.audit.conform.network import Network
from whence.audit.judge import judge as oracle
from whence.audit.trace import by_member

ALL = ("fifo", "causal", "reliable")


def begun(*nodes: str) -> NodeHistory:
    history = NodeHistory()
    for node in nodes:
        history.started(node, again=False)
    return history


def publish(history: NodeHistory, node: str, value: str, id: str | None = None) -> None:
    history.asked(node, value).id = id or value
    deliver(history, node, value, id)


def deliver(history: NodeHistory, node: str, value: str, id: str | None = None) -> None:
    history.delivered(node, Reported(id or value, value))


def rules(history: NodeHistory, claims: tuple[str, ...] = ALL) -> list[tuple[str, str]]:
    return [(f.rule, f.node) for f in judge(history, claims)]


def triangle() -> NodeHistory:
    h = begun("n1", "n2", "n3")
    publish(h, "n1", "q")
    deliver(h, "n2", "q")
    publish(h, "n2", "a")
    deliver(h, "n1", "a")
    return h


def test_an_effect_before_its_cause() -> None:
    h = triangle()
    deliver(h, "n3", "a")
    deliver(h, "n3", "q")
    (found,) = judge(h, ALL)
    assert found.text == (
        "n3 delivered a before q, though q happened before a: n1 published q; n2 delivered q, then published a"
    )
    assert rules(h, ("fifo", "reliable")) == []  # not of one node, so nothing was promised


def test_a_skipped_cause_is_a_loss_and_no_inversion() -> None:
    h = triangle()
    deliver(h, "n3", "a")
    assert rules(h, ("fifo", "causal")) == []
    (found,) = judge(h, ALL)
    assert (found.rule, found.node) == ("reliable", "n3")
    assert "delivered a without it (n1 published q; n2 delivered q, then published a)" in found.text


def test_what_is_delivered_while_a_publish_is_under_way_is_no_cause() -> None:
    h = begun("n1", "n2")
    publish(h, "n1", "x")
    asked = h.asked("n2", "y")
    deliver(h, "n2", "x")
    asked.id = "y"
    deliver(h, "n2", "y")
    deliver(h, "n1", "y")
    assert asked.causes == ()


def test_fifo() -> None:
    h = begun("n1", "n2")
    publish(h, "n1", "1")
    publish(h, "n1", "2")
    deliver(h, "n2", "2")
    deliver(h, "n2", "1")
    assert rules(h, ("fifo",)) == [("fifo", "n2")] and rules(h, ()) == []
    assert explain(h, "1", "2") == "n1 published 1, then 2"


def test_a_long_way_round() -> None:
    h = begun("n1", "n2", "n3", "n4")
    publish(h, "n1", "1")
    deliver(h, "n2", "1")
    publish(h, "n2", "2")
    publish(h, "n2", "3")
    deliver(h, "n3", "3")  # not 1 or 2: but they happened before 3
    publish(h, "n3", "4")
    deliver(h, "n4", "4")
    deliver(h, "n4", "1")
    assert explain(h, "1", "4") == (
        "n1 published 1; n2 delivered 1, then published 3; n3 delivered 3, then published 4"
    )
    assert ("causal", "n4") in rules(h, ("causal",))


@pytest.mark.parametrize("claims", [ALL, ()])
def test_integrity_is_promised_by_everybody(claims: tuple[str, ...]) -> None:
    h = begun("n1")
    publish(h, "n1", "x", id="1")
    deliver(h, "n1", "x", id="1")
    deliver(h, "n1", "nonsense", id="2")
    publish(h, "n1", "y", id="1")
    h.asked("n1", "z").id = "3"
    deliver(h, "n1", "z", id="4")
    texts = [f.text for f in judge(h, claims)]
    assert texts == [
        "n1 published y under id 1, which n1 had used for x",
        "n1 delivered 'nonsense', which nobody has published",
        "n1 delivered z as id 4, but n1 published it as id 3",
        "n1 delivered x 2 times",
    ]


def test_a_restarted_node_goes_on_unless_it_says_with_what_it_begins() -> None:
    for installs in (False, True):
        h = begun("n1", "n2")
        publish(h, "n1", "x")
        deliver(h, "n2", "x")
        h.ended("n1")
        h.started("n1", again=True)
        if installs:
            assert h.installed("n1", [Reported("x", "x")])
        else:
            deliver(h, "n1", "x")
        publish(h, "n1", "y")
        deliver(h, "n2", "y")
        assert h.events["y"].causes == ("x",)
        assert rules(h) == ([] if installs else [("integrity", "n1")])
        join = next(r for r in h.rows("r", "causal") if (r.member, r.kind) == ("n1#2", "join"))
        assert join.reason == ("genesis" if installs else "checkpoint")


def test_a_refused_publish_has_not_happened() -> None:
    h = begun("n1", "n2")
    h.refused(h.asked("n1", "x"))
    publish(h, "n1", "y")
    deliver(h, "n2", "y")
    assert h.events["y"].causes == () and rules(h) == []
    assert [r.kind for r in h.rows("r", "causal") if r.member == "n1#1"] == ["join", "publish", "deliver"]


def test_an_unanswered_publish_is_due_to_nobody() -> None:
    h = begun("n1", "n2")
    h.asked("n1", "x")
    assert rules(h) == [] and [r.kind for r in h.rows("r", "causal")] == ["join", "join"]


def test_many_findings_are_told_in_few_words() -> None:
    h = begun("n1", "n2")
    for i in range(9):
        publish(h, "n1", str(i))
    found = judge(h, ALL)
    assert len(found) == 6 and found[-1].text == "and 4 more"


@given(st.integers(0, 2**32), st.sampled_from(["wild", "in order"]))
def test_the_oracle_of_the_simulator_agrees(seed: int, manner: str) -> None:
    """Random histories, with mistakes in them: what the kit says of them, the trace of them says, too."""
    rng = random.Random(seed)
    h = begun("n1", "n2", "n3")
    for i in range(rng.randrange(3, 25)):
        node = rng.choice(["n1", "n2", "n3"])
        if not h.events or rng.random() < 0.3:
            publish(h, node, f"v{i}", id=rng.choice([f"v{i}", "again"]) if rng.random() < 0.1 else f"v{i}")
            continue
        left = [v for v in h.events if not h.has(node, v)]
        if manner == "in order":
            left = [v for v in left if all(h.has(node, c) for c in h.events[v].causes)]
        if left:
            deliver(h, node, v := rng.choice(left), h.events[v].id)
    found = dict.fromkeys(f.rule for f in judge(h, ("causal",)))
    rows = h.rows("run", "causal")
    by_member(rows)
    report = oracle(rows)
    if "reused id" in report.broken:
        assert "integrity" in found
    else:
        assert ("causal" in found) == bool(report.total.inverted)
        assert ("integrity" in found) == bool(report.total.duplicates or report.total.unknown)
    if manner == "in order":
        assert "causal" not in found


# -- the network ------------------------------------------------------------------------------------------------------


class Post:
    """Where the network hands over to."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.notes: list[str] = []
        self.down: set[str] = set()
        self.network = Network(lambda node, text: self.notes.append(text))

    def hand_over(self, node: str, line: bytes) -> bool:
        if node in self.down:
            return False
        self.got.append((node, line))
        return True

    def send(self, *lines: bytes) -> list[bytes]:
        self.got.clear()
        for line in lines:
            self.network.route(("n1", "n2"), partial(self.hand_over, "n2", line))
        return [line for _, line in self.got]


def test_links() -> None:
    post = Post()
    net, link = post.network, [("n1", "n2")]
    assert post.send(b"a", b"b") == [b"a", b"b"]
    net.set("lose", link)
    assert post.send(b"c") == [] and net.lost == {("n1", "n2"): 1}
    net.set("twice", link)
    assert post.send(b"d") == [b"d", b"d"]
    net.set("hold", link)
    assert post.send(b"e", b"f", b"g") == []
    net.release([("n1", "n3")])
    assert post.got == []
    net.release(link, newest_first=True)
    assert [line for _, line in post.got] == [b"g", b"f", b"e"]
    assert post.send(b"h") == [b"h"]
    post.got.clear()
    net.replay("n2")
    assert [line for _, line in post.got] == [b"h", b"e", b"f", b"g", b"d", b"d", b"b", b"a"]
    net.replay("n1")
    assert len(post.got) == 8
    post.down.add("n2")
    assert post.send(b"i") == []
    assert "hold n1 -> n2" in post.notes and "replay 8 messages" in post.notes


def test_opening_a_link_does_not_release_what_is_held_on_it() -> None:
    post = Post()
    post.network.set("hold", [("n1", "n2")])
    post.send(b"a")
    post.network.set("pass", [("n1", "n2")])
    assert post.send(b"b") == [b"b"]
    post.network.release([("n1", "n2")])
    assert [line for _, line in post.got] == [b"b", b"a"]
