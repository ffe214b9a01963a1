"""One room without a cluster: copies, cursors at several workers, and what is dropped."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from whence.core.clock import EventId
from whence.live.objects import Objects, StampedEvent
from whence.live.objects.kernel import Add, EventStamp, Set, encode, encode_value
from whence.live.web import room as rooms
from whence.live.web.room import Room
from whence.live.web.words import CloseCode, HangUp, Position, Spoken

INC = 1 << 48 | 1


def at(ticket: int, seq: int, total: int = 0) -> StampedEvent:
    return StampedEvent(EventStamp(1, 1, total or seq, *EventId(ticket, INC, seq, f"m{ticket}#1")), b"")


def write(key: str, value: object) -> bytes:
    return encode(Set("r/scores", key, msgspec.Raw(encode_value(value))))


class Client:
    """As whence.js does it: takes events, and keeps a cursor and the registers."""

    def __init__(self) -> None:
        self.cursor = Position()
        self.heard: list[tuple[str, int]] = []
        self.registers: dict[str, tuple[str, Any]] = {}
        self.sum = 0

    def take(self, text: str, id: tuple[int, int, int]) -> None:
        self.cursor.add(*id)
        said = json.loads(text)
        if said.get("o", [""])[0] == "set":
            _, _, key, value, stamp = said["o"]
            if key not in self.registers or self.registers[key][0] < stamp:
                self.registers[key] = (stamp, value)
        if not said.get("again"):
            self.heard.append((said["c"], said["n"]))
            self.sum += said["o"][2] if said.get("o", [""])[0] == "add" else 0

    def visit(self, room: Room, most: int) -> None:
        """Connect to a worker, and take some events."""
        found = room.resume(self.cursor)
        assert found is not None
        for n in range(found.start, room.end):
            if n not in found.has and (most := most - 1) >= 0:
                entry = room.log[n - room.base]
                self.take(entry.shown(n in found.again), entry.ids[0])


class Worker:
    """Delivers the events of all chains in an order of its own, each after those before it of the same client."""

    def __init__(self, chains: list[list[tuple[StampedEvent, Spoken]]]) -> None:
        self.room = Room("r", Objects())
        self.position = Position()
        self.left = [list(chain) for chain in chains]

    def step(self, rng: random.Random) -> bool:
        last = self.room.last
        ready = [chain for chain in self.left if chain and chain[0][1].number <= last.get(chain[0][1].name, 0) + 1]
        if not ready:
            return False
        event, said = rng.choice(ready).pop(0)
        self.position.add(*event.stamp[3:6])
        self.room.take(event, said, 0)
        return True


@pytest.mark.parametrize("seed", range(40))
def test_a_client_that_wanders_gets_everything_once_and_ends_as_the_workers(seed: int) -> None:
    """Three workers deliver the events of two publishers in different orders. One publisher was cut off at some time,
    and sent all since an earlier number again through another ticket: copies, with other stamps."""
    rng = random.Random(seed)
    chains: list[list[tuple[StampedEvent, Spoken]]] = [[], [], []]
    for total in range(1, 60):
        name = rng.choice("xy")
        mine = chains["xy".index(name)]
        n = len(mine) + 1
        said: Spoken = rng.choice([
            Spoken("r", name, "u", n, b'"%d"' % total),
            Spoken("r", name, "u", n, write("k", total)),
            Spoken("r", name, "u", n, encode(Add("r/hits", total))),
        ])  # fmt: skip
        mine.append((at("xy".index(name), n, total + rng.randrange(50)), said))
    for _, said in chains[0][rng.randrange(len(chains[0])) :]:
        chains[2].append((at(2, len(chains[2]) + 1, rng.randrange(200)), said))
    workers, client = [Worker(chains) for _ in range(3)], Client()
    while sum(worker.step(rng) for worker in workers for _ in range(rng.randrange(1, 5))):
        worker = rng.choice(workers)
        if worker.position.covers(client.cursor):
            client.visit(worker.room, rng.randrange(6))
    for worker in workers:
        client.visit(worker.room, 1000)
        name = "r/scores"
        assert worker.room.objects.registers(name).items() == workers[0].room.objects.registers(name).items()
    everything = {(said.name, said.number) for _, said in chains[0] + chains[1]}
    assert len(client.heard) == len(everything) and set(client.heard) == everything
    for name in "xy":
        assert [n for c, n in client.heard if c == name] == sorted(n for c, n in client.heard if c == name)
    assert client.sum == workers[0].room.objects.counter("r/hits").value
    kept = {key: value for key, (_, value) in client.registers.items()}
    assert kept == dict(workers[0].room.objects.registers("r/scores").items())


def posts(room: Room, first: int, last: int, ticket: int = 0) -> None:
    for n in range(first, last + 1):
        room.take(at(ticket, n), Spoken("r", "x", "u", n, b"1"), n)


def test_a_cursor_from_before_the_log_is_expired_and_a_newer_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "LOG_EVENTS", 100)
    room = Room("r", Objects())
    posts(room, 1, 300)
    assert room.base == 300 - len(room.log) and len(room.log) <= 164
    assert room.resume(Position()) is None
    assert room.resume(Position({(0, INC): room.base - 1})) is None
    found = room.resume(Position({(0, INC): room.base}))
    assert found is not None and found.start == room.base and not found.has
    assert room.size == sum(len(entry.text) for entry in room.log)


def test_a_worker_that_joins_resumes_what_its_giver_would() -> None:
    room = Room("r", Objects())
    posts(room, 1, 50)
    room.here("a#1", "x", "ann", b"1")
    room.here("b#1", "y", "bob", b"2")
    state = msgspec.msgpack.decode(msgspec.msgpack.encode(room.state(1 << 20, {"a#1"})), type=rooms.RoomState)
    other = Room.of(state, Objects())
    for seq in (0, 7, 50):
        cursor = Position({(0, INC): seq} if seq else {})
        found, given = other.resume(cursor), room.resume(cursor)
        assert found is not None and given is not None
        assert other.end - found.start == room.end - given.start == 50 - seq
    assert other.shown == other.end and other.last == {"x": 50}
    assert json.loads(other.who({"a#1", "b#1"}))["e"] == [{"c": "x", "u": "ann", "d": 1}], "b has gone"
    posts(other, 50, 51)
    assert other.end == 51, "the copy of 50 is none of its events"
    little = Room.of(room.state(1, set()), Objects())
    assert little.resume(Position({(0, INC): 20})) is None, "a joiner that was given little says so"


def test_what_is_no_operation_is_named() -> None:
    room = Room("r", Objects(limit=10_000))
    update = "AQHhAQAEAQR0ZXh0BWhlbGxvAA=="
    for words in (["set", "s", "k", 1], ["del", "s", "k"], ["add", "c", -3], ["edit", "d", update]):
        assert room.operation(words)
    for words in (
        ["set", "s", 1, 2], ["set", "s", "k"], ["add", "c", "1"], ["add", "c", 1 << 70], ["edit", "d", "AAAA!"],
        ["edit", "d", "c3R1ZmY="], ["no", "s", "k"], ["set", "s" * 200, "k", 1], ["set", "s", "", 1], [1, 2, 3],
    ):  # fmt: skip
        with pytest.raises(HangUp) as said:
            room.operation(words)
        assert said.value.code == CloseCode.NONSENSE, words
    with pytest.raises(HangUp) as said:
        room.operation(["set", "s", "k", "x" * 20_000])
    assert said.value.code == CloseCode.FULL


def test_an_operation_on_another_rooms_object_changes_nothing() -> None:
    room = Room("r", Objects())
    other = encode(Set("q/scores", "k", msgspec.Raw(encode_value(1))))
    entry = room.take(at(0, 1), Spoken("r", "x", "u", 1, other), 1)
    assert entry is not None and json.loads(entry.text)["o"] == ["none"], "its client gets its receipt"
    assert room.objects.registers("q/scores").items() == []
