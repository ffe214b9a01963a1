"""One room at one worker: the events that clients may still need, who published what, who is there. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec

from whence.core.clock.bounds import keep_last
from whence.errors import UsageError
from whence.live.objects import BadOperation, Full, Objects, StampedEvent, kernel
from whence.live.objects.document import pycrdt
from whence.live.web.words import MAX_DATA, MAX_ROOM, CloseCode, HangUp, Position, Spoken, json, stamp_text

LOG_EVENTS: Final = 2048
"""Events of a room that are kept for clients; one that is further behind gets the state of the room instead."""
LOG_BYTES: Final = 256 << 10
MAX_CLIENTS: Final = 2048
"""Clients of a room whose last number is remembered; the one that published longest ago is forgotten."""
MAX_PRESENT: Final = 64
"""Clients that are named in what is said of who is there; the others are counted."""
EDITOR: Final = (1, 1)
"""Client and number of every edit that a worker publishes. Nothing is lost in reliable order, so edits need no numbers;
and a copy of an edit is dropped, which would leave a hole in them."""

Id = tuple[int, int, int]
"""Ticket, incarnation, seq."""


class LogEntry(msgspec.Struct, array_like=True, gc=False):
    """An event of a room, as clients get it."""

    ids: list[Id]
    """Its id, and those of its copies."""
    name: str
    number: int
    text: str
    """JSON."""
    merges: bool
    """It is a write of a register: a copy of it counts, since its stamp may be greater."""
    again: bool = False
    """It is such a copy."""
    at: int = 0
    """How many events this worker had read with it (`Rooms`)."""

    def given(self, cursor: Position) -> bool | None:
        """Whether a client with this cursor has it; None: it has a copy, and needs this one, too."""
        if cursor.has(*self.ids[0]):
            return True
        if any(cursor.has(*other) for other in self.ids[1:]):
            return None if self.merges else True
        return False

    def shown(self, again: bool) -> str:
        """As it is sent; `again`: the client applies it, and its application does not hear of it."""
        return f'{self.text[:-1]},"again":true}}' if again or self.again else self.text


class RoomState(msgspec.Struct, array_like=True):
    """A room, for a worker that joins."""

    name: str
    last: dict[str, int]
    trimmed: list[Id]
    entries: list[LogEntry]
    present: dict[str, dict[str, tuple[str, bytes]]]
    fresh: bool


class Resumed(NamedTuple):
    """What a client with a cursor gets: the entries from `start` on, but those that it `has`; of those in `again` it
    has a copy."""

    start: int
    has: frozenset[int]
    again: frozenset[int]


@dataclass
class Room:
    """Its entries have numbers that count on while the oldest are dropped: entry n is `log[n - base]`."""

    name: str
    objects: Objects
    last: dict[str, int] = field(default_factory=dict)
    """Client -> the last number of it that was delivered; who published last stands last."""
    log: list[LogEntry] = field(default_factory=list)
    base: int = 0
    size: int = 0
    trimmed: Position = field(default_factory=Position)
    """What the log has no more."""
    fresh: bool = True
    """Nothing was ever published in it."""
    shown: int = 0
    """The number of the first entry that clients may not have yet (rule 5 in `words`)."""
    present: dict[str, dict[str, tuple[str, bytes]]] = field(default_factory=dict)
    """Worker -> client -> its user, and what it says of itself."""
    _recent: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The number of the next entry."""
        return self.base + len(self.log)

    # -- events -------------------------------------------------------------------------------------------------

    def take(self, event: StampedEvent, said: Spoken, at: int) -> LogEntry | None:
        """A delivered event: apply it. Returns what clients get; None: a copy that says nothing new."""
        first = said.number > self.last.get(said.name, 0)
        if first:
            self.last.pop(said.name, None)
            self.last[said.name] = said.number
            keep_last(self.last, MAX_CLIENTS)
        stamp = event.stamp
        id: Id = (stamp.ticket, stamp.inc, stamp.seq)
        if not first and (known := self._recent.get((said.name, said.number))) is not None and known >= self.base:
            self.log[known - self.base].ids.append(id)
        said_of: dict[str, Any] | None = None
        if kernel.is_operation(said.data):
            said_of = self._apply(event, said.data, first) or ({"o": ("none",)} if first else None)
        elif first:
            said_of = {"d": msgspec.Raw(said.data)}
        if said_of is None:
            return None
        self.fresh = False
        who = {"i": str(stamp.event).partition("@")[0], "c": said.name, "n": said.number, "u": said.user}
        merges = said_of.get("o", ("",))[0] in ("set", "del")
        entry = LogEntry([id], said.name, said.number, json(who | said_of).decode(), merges, not first, at)
        if first:
            self._recent[said.name, said.number] = self.end
        self.log.append(entry)
        self.size += len(entry.text)
        self._trim(LOG_EVENTS, LOG_BYTES)
        return entry

    def _apply(self, event: StampedEvent, payload: bytes, first: bool) -> dict[str, Any] | None:
        """What clients do with it; None: nothing."""
        try:
            operation = kernel.decode(payload)
        except BadOperation:
            return None
        if not operation.name.startswith(f"{self.name}/") or not (
            first or isinstance(operation, kernel.Set | kernel.Delete)
        ):
            return None
        before = self.objects.stats.malformed + self.objects.stats.refused
        self.objects.apply(event._replace(payload=payload))
        if self.objects.stats.malformed + self.objects.stats.refused > before:
            return None
        name, stamp = operation.name[len(self.name) + 1 :], stamp_text(event.stamp)
        match operation:
            case kernel.Set(_, key, value):
                return {"o": ("set", name, key, kernel.decode_value(bytes(value)), stamp)}
            case kernel.Delete(_, key):
                return {"o": ("del", name, key, stamp)}
            case kernel.Add(_, amount):
                return {"o": ("add", name, amount)}
            case kernel.Edit(_, _, _, update):
                return {"o": ("edit", name, base64.b64encode(update).decode())}
        return None

    def _trim(self, events: int, most: int) -> None:
        """Drop the oldest entries, many at a time."""
        if len(self.log) <= events + 64 and self.size <= most:
            return
        many = 0
        while len(self.log) - many > events or self.size > most:
            self.drop(self.log[many])
            many += 1
        del self.log[:many]
        self.base += many

    def drop(self, entry: LogEntry) -> None:
        """It is in the log no more."""
        self.size -= len(entry.text)
        self.trimmed.add(*entry.ids[0])
        if not entry.again:
            self._recent.pop((entry.name, entry.number), None)

    def show(self, upto: int) -> bool:
        """Clients may have what this worker had read by then; whether that is more than before."""
        before = self.shown = max(self.shown, self.base)
        while self.shown < self.end and self.log[self.shown - self.base].at <= upto:
            self.shown += 1
        return self.shown > before

    # -- clients ------------------------------------------------------------------------------------------------

    def resume(self, cursor: Position) -> Resumed | None:
        """How a client with this cursor goes on; None: the log lacks something that the cursor lacks."""
        if not cursor.covers(self.trimmed):
            return None
        found = [(n, entry.given(cursor)) for n, entry in enumerate(self.log, self.base)]
        has, again = ([n for n, given in found if given is which] for which in (True, None))
        lacks = [n for n, given in found if given is not True]
        return Resumed(lacks[0] if lacks else self.end, frozenset(has), frozenset(again))

    def contents(self) -> dict[str, Any]:
        """All objects, as clients keep them."""
        prefix = f"{self.name}/"

        def mine(kind: str) -> Iterator[tuple[str, str]]:
            return ((n[len(prefix) :], n) for n in self.objects.names(kind) if n.startswith(prefix))

        rows = {name: self.objects.registers(full).rows() for name, full in mine("registers")}
        return {
            "registers": {
                name: {k: (stamp_text(s),) if v is None else (stamp_text(s), kernel.decode_value(v)) for k, s, v in of}
                for name, of in rows.items()
            },
            "counters": {name: self.objects.counter(full).value for name, full in mine("counter")},
            "documents": {
                name: base64.b64encode(self.objects.document(full).update()).decode() for name, full in mine("document")
            },
        }

    def operation(self, words: list[Any]) -> bytes:
        """The operation that a client asks for; raises `HangUp`."""
        try:
            return self.objects.check_room(self._operation(words))
        except Full as error:
            raise HangUp(CloseCode.FULL, str(error)) from None
        except (UsageError, msgspec.MsgspecError, ValueError, TypeError) as error:
            raise HangUp(CloseCode.NONSENSE, f"not an operation: {error}") from None

    def _operation(self, words: list[Any]) -> bytes:
        name = str(words[1])
        full = f"{self.name}/{name}"
        if len(name) > kernel.MAX_NAME - MAX_ROOM - 1:
            raise UsageError(f"an object's name has at most {kernel.MAX_NAME - MAX_ROOM - 1} characters")
        match words:
            case "set", _, str(key), value:
                return kernel.encode(kernel.Set(full, key, msgspec.Raw(kernel.encode_value(value))))
            case "del", _, str(key):
                return kernel.encode(kernel.Delete(full, key))
            case "add", _, int(amount):
                return kernel.encode(kernel.Add(full, amount))
            case "edit", _, str(text):
                update = base64.b64decode(text, validate=True)
                checked_update(update)
                return kernel.encode(kernel.Edit(full, *EDITOR, update))
        raise UsageError(f"{str(words[0])[:40]!r} with {len(words) - 2} values")

    # -- who is there -------------------------------------------------------------------------------------------

    def here(self, worker: str, name: str, user: str, data: bytes) -> None:
        """What a client says of itself at a worker; empty: it has gone."""
        of = self.present.setdefault(worker, {})
        if data:
            of[name] = (user, data)
        else:
            of.pop(name, None)
            if not of:
                del self.present[worker]

    def who(self, workers: set[str]) -> str:
        """Who is there, at these workers, as clients are told."""
        found = {name: said for worker, of in self.present.items() if worker in workers for name, said in of.items()}
        some = sorted(found.items())[:MAX_PRESENT]
        rows = [{"c": name, "u": user, "d": msgspec.Raw(data)} for name, (user, data) in some]
        return json({"t": "here", "count": len(found), "e": rows}).decode()

    # -- snapshots ----------------------------------------------------------------------------------------------

    def state(self, most: int, workers: set[str]) -> RoomState:
        """For a worker that joins, with so much of the log."""
        keep = len(self.log)
        while keep and (most := most - len(self.log[keep - 1].text) - 100) > 0:
            keep -= 1
        trimmed = Position(dict(self.trimmed.upto))
        for entry in self.log[:keep]:
            trimmed.add(*entry.ids[0])
        present = {worker: of for worker, of in self.present.items() if worker in workers}
        lost = [(*tenure, seq) for tenure, seq in trimmed.upto.items()]
        return RoomState(self.name, self.last, lost, self.log[keep:], present, self.fresh)

    @classmethod
    def of(cls, state: RoomState, objects: Objects) -> Room:
        """The inverse of `state`."""
        trimmed = Position({(ticket, inc): seq for ticket, inc, seq in state.trimmed})
        room = cls(state.name, objects, state.last, state.entries, trimmed=trimmed, fresh=state.fresh)
        room.present = state.present
        room.size = sum(len(entry.text) for entry in room.log)
        room._recent = {(e.name, e.number): n for n, e in enumerate(room.log) if not e.again}
        for entry in room.log:
            entry.at = 0
        room.show(0)
        return room


def checked_update(update: bytes) -> None:
    """Raise UsageError for bytes that are no Yjs update: nobody else has to try them."""
    try:
        pycrdt().Doc().apply_update(update)
    except UsageError:
        raise
    except BaseException as error:  # a panic of its Rust core is no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise UsageError("not a Yjs update") from None


def checked_json(data: msgspec.Raw, most: int = MAX_DATA) -> bytes:
    """The bytes of a JSON value, if they are few enough; raises `HangUp`."""
    if len(data) > most:
        raise HangUp(CloseCode.TOO_LARGE, f"{len(data)} bytes of data; at most {most}")
    return bytes(data)
