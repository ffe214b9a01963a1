"""Workers and their clients: order, cursors at other workers, slow readers, and what is refused. In virtual time."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

import whence
from tests.live.net.live import until
from tests.live.web.world import Socket, workers
from whence.audit.judge import judge
from whence.audit.trace import Row
from whence.live.web import app, room
from whence.live.web.app import Rights, Visit
from whence.live.web.words import MAX_WORD, CloseCode


async def test_clients_of_all_workers_hear_the_question_before_the_answer() -> None:
    async with workers(3) as them:
        a, b, c = [await them.client(worker, key) for worker, key in zip(them.all, "abc", strict=True)]
        for n in range(1, 21):
            await a.publish(n, f"{n}?")
            assert (await b.got(2 * n - 1))[-1] == f"{n}?"
            await b.publish(n, f"{n}!")
            await b.got(2 * n)
        for client in (a, b, c):
            said = await client.got(40)
            assert sorted(said) == sorted(f"{n}{mark}" for n in range(1, 21) for mark in "?!")
            assert all(said.index(f"{n}?") < said.index(f"{n}!") for n in range(1, 21))
        assert {event["u"] for event in c.events} == {"a", "b"}


async def test_after_kill_9_another_worker_gives_the_exact_suffix_and_takes_what_was_not_receipted() -> None:
    async with workers(3) as them:
        first, second, third = them.all
        mine, other = await them.client(first, "mine"), await them.client(third, "other")
        for n in range(1, 31):
            await mine.publish(n, n)
        await mine.got(17)
        first.cluster.abandon()  # to the others it is a crash
        heard = [event["n"] for event in mine.events]
        await other.publish(1, "meanwhile")
        again = await them.client(second, "mine", me=mine.welcome["me"], run=mine.welcome["run"], cursor=mine.cursor)
        assert again.welcome["why"] == "resumed" and "state" not in again.welcome
        for n in range(len(heard) + 1, 41):  # all that it has no receipt for, and new ones
            await again.publish(n, n)
        await until(lambda: sum(e["u"] == "mine" for e in mine.events[: len(heard)] + again.events) >= 40, "all of it")
        got = [e["n"] for e in again.events if e["u"] == "mine"]
        assert heard + got == list(range(1, 41)), "no gap, and no duplicate"
        await until(lambda: len(other.events) >= 41, "all of it at a third")
        assert [e["n"] for e in other.events if e["u"] == "mine"] == list(range(1, 41))


async def test_what_only_its_worker_holds_is_shown_to_nobody() -> None:
    """Rule 5: the worker is cut off when it publishes, and dies. Nobody has seen the event, so it may be sent again."""
    async with workers(3) as them:
        client = await them.client(them.all[0], "mine")
        await client.publish(1, "before")
        await client.got(1)
        them.network.cut([them.all[0].cluster.address], [worker.cluster.address for worker in them.all[1:]])
        await client.publish(2, "alone")
        assert (await client.hear("why"))["why"] == "events wait until a second member holds them"
        assert len(client.events) == 1
        them.all[0].cluster.abandon()
        again = await them.client(them.all[1], "mine", run=client.welcome["run"], cursor=client.cursor)
        await again.publish(2, "alone")
        assert await again.got(1) == ["alone"]


async def test_objects_are_the_same_at_clients_that_come_late() -> None:
    async with workers(2) as them:
        a, b = [await them.client(worker, key) for worker, key in zip(them.all, "ab", strict=True)]
        await a.say(t="op", n=1, o=["set", "scores", "ann", 3])
        await a.say(t="op", n=2, o=["set", "scores", "bob", {"deep": [1]}])
        await b.say(t="op", n=1, o=["add", "hits", 2])
        await a.say(t="op", n=3, o=["del", "scores", "ann"])
        await a.say(t="op", n=4, o=["edit", "notes", "AQHhAQAEAQR0ZXh0BWhlbGxvAA=="])
        await a.say(t="op", n=5, o=["add", "hits", -5])
        for client in (a, b):
            await client.got(6)
        for worker in them.all:
            state = (await them.client(worker, "late")).welcome["state"]
            assert state["counters"] == {"hits": -3}
            assert {k: row[1:] for k, row in state["registers"]["scores"].items()} == {
                "ann": [],
                "bob": [{"deep": [1]}],
            }
            assert "hello" in worker.hub.objects.document("lobby/notes").text and list(state["documents"]) == ["notes"]


async def test_a_worker_that_joins_later_serves_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with workers(2) as them:
        client = await them.client(them.all[0], "early")
        for n in range(1, 11):
            await client.publish(n, n)
        await client.got(10)
        third = await them.add()
        cursor = {next(iter(client.cursor)): 4}
        again = await them.client(third, "early", run=client.welcome["run"], cursor=cursor)
        assert await again.got(6) == [5, 6, 7, 8, 9, 10]
        await again.publish(10, 10)
        await again.publish(11, "next")
        assert (await again.got(7))[-1] == "next"


async def test_who_is_there_and_who_has_gone_with_a_worker() -> None:
    async with workers(3) as them:
        a, b, c = [await them.client(worker, key) for worker, key in zip(them.all, "abc", strict=True)]
        await a.say(t="here", d={"mood": "fine"})
        await b.say(t="here", d=None)
        await b.say(t="here", d=1)

        def there(client: Socket) -> list[Any]:
            words = [word for word in client.words if word["t"] == "here"]
            return [(each["u"], each["d"]) for each in words[-1]["e"]] if words else []

        await until(lambda: sorted(there(c)) == [("a", {"mood": "fine"}), ("b", 1)], "both are there")
        await a.close()
        await until(lambda: there(c) == [("b", 1)], "a has left")
        them.all[1].cluster.abandon()
        await until(lambda: there(c) == [], "b has gone with its worker")


async def test_a_slow_client_is_told_and_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "WINDOW_EVENTS", 20)
    async with workers(2) as them:
        fast, slow = await them.client(them.all[0], "fast"), await them.client(them.all[1], "slow")
        slow.slow = True
        for n in range(1, 101):
            await fast.publish(n, n)
        await fast.got(100)
        await slow.hear("behind")
        assert len(slow.events) <= 2 * 20, "no more is sent to it"
        slow.slow = False
        await slow.say(t="took", k=slow.taken)
        assert await slow.got(100) == list(range(1, 101))


async def test_a_client_that_the_log_has_overtaken_starts_over_and_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "WINDOW_EVENTS", 20)
    monkeypatch.setattr(room, "LOG_EVENTS", 100)
    async with workers(2) as them:
        fast, slow = await them.client(them.all[0], "fast"), await them.client(them.all[1], "slow")
        slow.slow = True
        for n in range(1, 401):
            await fast.say(t="op", n=n, o=["add", "hits", 1])
            if n % 50 == 0:
                await fast.got(n)
        held = sum(len(entry.text) for one in them.all for there in one.hub.rooms.values() for entry in there.log)
        assert held < 2 * 200 * 200, "what waits for it is bounded"
        await until(lambda: slow.words[-1]["t"] == "behind", "it is told")
        await slow.say(t="took", k=slow.taken)
        await until(lambda: slow.words[-1].get("why") == "behind", "it starts over")
        assert slow.words[-1]["state"]["counters"] == {"hits": 400}
        early = await them.client(them.all[1], "early", run=fast.welcome["run"], cursor={})
        assert early.welcome["why"] == "expired" and early.welcome["state"]["counters"] == {"hits": 400}


async def test_one_that_takes_nothing_for_long_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "WINDOW_EVENTS", 5)
    async with workers(1) as them:
        fast, dead = await them.client(them.all[0], "fast"), await them.client(them.all[0], "dead")
        dead.slow = True
        for n in range(1, 21):
            await fast.publish(n, n)
        assert (await dead.end())[0] == CloseCode.SLOW
        assert len(await fast.got(20)) == 20


async def guarded(request: Visit) -> Rights | None:
    await asyncio.sleep(0.1)
    return {"ann": Rights("ann"), "eve": Rights("eve", publish=False), "dumb": Rights("x", read=False)}.get(
        request.token
    )


def hello(**more: Any) -> dict[str, Any]:
    return {"t": "hello", "v": 1, "key": "k" * 16, "token": "ann", **more}


BAD = {
    "nonsense": ("lobby", {}, ["what?"], CloseCode.NONSENSE),
    "not utf-8": ("lobby", {}, ["\ud800"], CloseCode.NONSENSE),
    "publishes first": ("lobby", {}, [{"t": "pub", "n": 1, "d": 1}], CloseCode.NONSENSE),
    "hello twice": ("lobby", {}, [hello(), hello()], CloseCode.NONSENSE),
    "another version": ("lobby", {}, [hello(v=2)], CloseCode.NONSENSE),
    "no room": ("a/b", {}, [hello()], CloseCode.NONSENSE),
    "too much": ("lobby", {}, [hello(), "x" * (MAX_WORD + 1)], CloseCode.TOO_LARGE),
    "too much in one event": ("lobby", {}, [hello(), {"t": "pub", "n": 1, "d": "x" * (1 << 17)}], CloseCode.TOO_LARGE),
    "a stranger": ("lobby", {}, [hello(token="nobody")], CloseCode.REFUSED),
    "may not read": ("lobby", {}, [hello(token="dumb")], CloseCode.REFUSED),
    "may not publish": ("lobby", {}, [hello(token="eve"), {"t": "pub", "n": 1, "d": 1}], CloseCode.FORBIDDEN),
    "may not be there": ("lobby", {}, [hello(token="eve"), {"t": "here", "d": 1}], CloseCode.FORBIDDEN),
    "another's identity": ("lobby", {}, [hello(me="0123456789abcdef")], CloseCode.IMPOSTOR),
    "a cursor from the future": ("lobby", {}, [hello(cursor={"0:1.0.1": 1 << 40})], CloseCode.FUTURE),
    "a cursor that is none": ("lobby", {}, [hello(cursor={"x": 1})], CloseCode.NONSENSE),
    "a number from the future": ("lobby", {}, [hello(), {"t": "pub", "n": 9, "d": 1}], CloseCode.FUTURE),
    "took what it was not given": ("lobby", {}, [hello(), {"t": "took", "k": 9}], CloseCode.NONSENSE),
    "a foreign page": (
        "lobby",
        {"origin": "https://evil.example", "host": "chat.example"},
        [hello()],
        CloseCode.ORIGIN,
    ),
    "half a handshake": ("lobby", {}, [], CloseCode.HALF_OPEN),
    "no update": ("lobby", {}, [hello(), {"t": "op", "n": 1, "o": ["edit", "d", "c3R1ZmY="]}], CloseCode.NONSENSE),
    "a step of another": ("lobby", {}, [hello(), {"t": "rows", "r": [[0, 1.0, "crash", ""]]}], CloseCode.NONSENSE),
}


async def test_bad_input_is_named_and_disturbs_nobody() -> None:
    async with workers(2, authorize=guarded, traced=True) as them:
        good = [await them.client(worker, key, token="ann") for worker, key in zip(them.all, "gh", strict=True)]
        for number, (what, (place, headers, words, code)) in enumerate(BAD.items(), 1):
            bad = await them.socket(them.all[1], place, **headers)
            for word in words:
                word = word | {"run": good[0].welcome["run"]} if "cursor" in word else word  # type: ignore[operator]
                await bad.say(word if isinstance(word, str) else json.dumps(word))
            assert (await bad.end())[0] == code, (what, bad.closed)
            assert 0 < len(bad.closed[1]) <= 120, what
            await good[0].publish(number, what)
            assert (await good[1].got(number))[-1] == what
        assert good[0].closed is good[1].closed is None
        assert them.all[1].stats()["strangers"] == 0 and them.all[1].stats()["clients"] == 1


async def test_too_many_connections_are_named_and_the_others_go_on() -> None:
    async with workers(1, max_clients=5, max_strangers=20) as them:
        [worker] = them.all
        clients = [await them.client(worker, str(n)) for n in range(5)]
        assert (await (await them.socket(worker)).end())[0] == CloseCode.TOO_MANY
        await clients[0].close()
        half = [await them.socket(worker) for _ in range(30)]
        await until(lambda: sum(each.closed is not None for each in half) >= 10, "some are refused at once")
        await clients[1].publish(1, "hello")
        assert await clients[2].got(1) == ["hello"]
        assert {(await each.end())[0] for each in half} == {CloseCode.TOO_MANY, CloseCode.HALF_OPEN}
        assert (await them.client(worker, "next")).welcome["why"] == "new"


async def test_pages_of_this_host_or_of_listed_ones_may_connect() -> None:
    async with workers(1) as them:
        for origins, origin, works in (
            (None, "http://chat.example:8000", True),
            (None, "http://chat.example", False),
            (["https://a.example"], "https://a.example", True),
            (["https://a.example"], "http://chat.example:8000", False),
            (["*"], "null", True),
        ):
            them.all[0].origins = origins
            socket = await them.socket(them.all[0], origin=origin, host="chat.example:8000")
            await socket.say(**hello())
            assert bool(await socket.hear("welcome")) if works else (await socket.end())[0] == CloseCode.ORIGIN


async def test_the_newer_connection_of_a_client_replaces_the_older() -> None:
    async with workers(1) as them:
        older = await them.client(them.all[0], "same")
        newer = await them.client(them.all[0], "same")
        assert (await older.end())[0] == CloseCode.REPLACED
        await newer.publish(1, "hello")
        assert await newer.got(1) == ["hello"]


async def test_only_subscribing_costs_no_ticket() -> None:
    async with workers(2) as them:
        await them.client(them.all[0], "reader")
        await them.client(them.all[1], "reader2")
        await asyncio.sleep(20)
        assert them.all[1].cluster.stats()["order.published"] == 0


async def test_the_steps_of_clients_are_judged_with_those_of_workers() -> None:
    """The last hop is in the trace: a client that gets an effect before its cause is found."""
    async with workers(2, traced=True) as them:
        a, b = [await them.client(worker, key) for worker, key in zip(them.all, "ab", strict=True)]
        ids = [client.welcome["me"] for client in (a, b)]
        await a.publish(1, "?")
        await b.got(1)
        await b.publish(1, "!")
        for client in (a, b):
            await client.got(2)
        q, answer = f"{ids[0]}/1", f"{ids[1]}/1"
        steps = {0: [("join", ""), ("publish", q), ("deliver", q), ("deliver", answer)],
                 1: [("join", ""), ("deliver", q), ("publish", answer), ("deliver", answer)]}  # fmt: skip
        for n, client in enumerate((a, b)):
            await client.say(t="rows", r=[[lseq, 1e12, *step] for lseq, step in enumerate(steps[n])])
            await client.hear("rows")
        rows = [row for row in them.trace.rows if row.cluster == "x/lobby"]
    report = judge(rows, complete=False)
    assert report.ok and {row.member for row in rows} == {f"{name}#1" for name in ids}
    assert judge([row for row in them.trace.rows if row.cluster == "x"], complete=False).ok
    wrong = [swapped(row, {q + "#": "", f"{ids[0]}#1/1": f"{ids[1]}#1/1", f"{ids[1]}#1/1": f"{ids[0]}#1/1"})
             if row.member == f"{ids[0]}#1" and row.kind == "deliver" else row for row in rows]  # fmt: skip
    assert not judge(wrong, complete=False).ok


def swapped(row: Row, names: dict[str, str]) -> Row:
    event = names.get(str(row.event), str(row.event))
    return Row(
        row.run, row.cluster, row.member, row.lseq, row.t_ns, row.kind, event=event, origin=event.partition("/")[0]
    )


def test_rooms_need_reliable_order_and_their_own_state() -> None:
    with pytest.raises(whence.UsageError, match="reliable"):
        app.rooms(whence.create("x", insecure=True), authorize=app.anyone)
    with pytest.raises(whence.UsageError, match="state"):
        app.rooms(whence.create("x", insecure=True, order="reliable", state=bytes), authorize=app.anyone)


async def test_http_serves_the_client_and_says_whether_it_is_well() -> None:
    async with workers(1) as them:

        async def get(path: str, method: str = "GET") -> tuple[int, bytes]:
            sent: list[Any] = []

            async def send(message: Any) -> None:
                sent.append(message)

            await them.all[0]({"type": "http", "path": path, "method": method}, lambda: asyncio.sleep(0, {}), send)
            return sent[0]["status"], sent[1]["body"]

        assert b"export function join" in (await get("/whence.js"))[1]
        assert [(await get(*asked))[0] for asked in (("/no",), ("/../hub.py",), ("/whence.js", "POST"))] == [
            404,
            404,
            405,
        ]
        assert json.loads((await get("/health"))[1])["ok"] is True
        them.all[0].cluster.abandon()
        await until(lambda: not them.all[0].hub.open, "it notices")
        assert (await get("/health"))[0] == 503
        assert (await (await them.socket(them.all[0])).end())[0] == CloseCode.LEAVING
