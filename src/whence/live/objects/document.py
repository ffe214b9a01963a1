"""A shared text, and shared JSON: Yjs documents (pycrdt) whose updates are published as events.

The **replica** holds exactly what was delivered, and snapshots are made of it. The **draft**, which exists only at
members that edit, is the replica plus own edits that are not delivered yet.

Updates of one editor are numbered. Causal order delivers them in that order; one that follows a lost one is dropped. A
snapshot is complete only if no update waits inside pycrdt for another editor's, which causal order ensures. Yjs
promises to handle both cases, but pycrdt 0.14 does not (found by test): updates of one editor out of order, or a state
taken while an update waits, lead to different texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

import msgspec

from whence.errors import UsageError
from whence.live.objects.kernel import UNREADABLE, Alter, BadOperation, Edit, EventStamp, Operation, encode

if TYPE_CHECKING:
    from pycrdt import Doc, Text

_LOG = 256  # updates between two full copies, which a rollback starts from

Editor = tuple[str, int]
"""`(owner, client)`: a member id and its Yjs client id."""


class _DocumentState(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    update: bytes
    numbers: list[tuple[str, int, int]]


def pycrdt() -> Any:
    """Import pycrdt lazily: only documents need it."""
    try:
        import pycrdt
    except ImportError:
        raise UsageError("documents need pycrdt: pip install whence[document]") from None
    return pycrdt


def client_of(*parts: str) -> int:
    """A Yjs client id (1 to 2**52) derived from these parts. Two editors must never share one."""
    digest = hashlib.blake2b("\0".join(parts).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 12) + 1


def _refused(error: BaseException) -> bool:
    """Whether pycrdt rejected an update: an exception, or a panic of its Rust core (not an `Exception`)."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


class YjsReplica:
    """The replica, and the edits on it, whatever the document holds."""

    kind: ClassVar[str]
    root: ClassVar[str]
    """The Yjs type of what it holds."""
    operation: ClassVar[type[Edit]]

    def __init__(self, name: str, me: str = "", client: int | None = None) -> None:
        self.name = name
        self.me = me
        self.dropped = 0
        """Updates that follow a lost one of the same editor: this replica lacks them."""
        self._client = client
        self._generation = 0
        self._reset()

    def _reset(self) -> None:
        self._doc, self._root = self._new(1)
        self._base, self._log = b"", list[bytes]()  # the replica as bytes, and the updates since then
        self._draft: tuple[Doc[Any], Any] | None = None
        self._edits: list[bytes] = []
        self._number = 0
        self._numbers: dict[Editor, int] = {}
        self._size = 64

    def _new(self, client: int) -> tuple[Doc[Any], Any]:
        library = pycrdt()
        doc = library.Doc(client_id=client)
        return doc, doc.get(self.root.lower(), type=getattr(library, self.root))

    # -- reading ------------------------------------------------------------------------------------------------

    def update(self) -> bytes:
        """The delivered contents as one Yjs update."""
        update: bytes = self._doc.get_update()
        return update

    @property
    def client(self) -> int:
        """The Yjs client id of this editor. Every new draft has a new one: Yjs numbers an editor's changes, and a
        reused number corrupts the text."""
        if self._client is not None and not self._generation:
            return self._client
        if not self.me:
            raise UsageError("editing needs a member id: set Objects.me (attaching to a cluster does)")
        return client_of(self.me, self.name, str(self._generation))

    # -- edits, to be published -----------------------------------------------------------------------------------

    def _edit(self, change: Callable[[Any], None]) -> bytes:
        """What `change` does to the root, as one operation. What it raises undoes it."""
        doc, root = self._draft or self._begin_draft()
        self._edits.clear()
        try:
            with doc.transaction():
                change(root)
        except BaseException:
            self._drop_draft()
            raise
        return self._operation(self._edits.pop() if self._edits else doc.get_update(doc.get_state()))

    def unsent(self) -> bytes | None:
        """After a failed publish: one operation with all own edits that were not delivered, or None."""
        delivered = self._numbers.get((self.me, self.client), 0) if self._draft else 0
        if self._draft is None or self._number <= delivered:
            return None
        self._number = delivered
        return self._operation(self._draft[0].get_update(self._doc.get_state()))

    def _begin_draft(self) -> tuple[Doc[Any], Any]:
        doc, root = self._new(self.client)
        doc.apply_update(self._doc.get_update())
        doc.observe(lambda event: self._edits.append(event.update))
        self._draft = doc, root
        return doc, root

    def _operation(self, update: bytes) -> bytes:
        payload = encode(self.operation(self.name, self.client, self._number + 1, update))
        self._number += 1
        return payload

    # -- Replica ------------------------------------------------------------------------------------------------

    def apply(self, stamp: EventStamp, operation: Operation) -> bool:
        if type(operation) is not self.operation:
            raise BadOperation(f"{type(operation).__name__} on a {self.kind}")
        editor = (stamp.owner, operation.client)
        number, upto = operation.number, self._numbers.get(editor, 0)
        if number > upto + 1:
            self.dropped += 1
            return False
        self._integrate(operation.update)
        self._numbers[editor] = max(upto, number)
        return True

    def _integrate(self, update: bytes) -> None:
        try:
            self._doc.apply_update(update)
        except BaseException as error:
            if not _refused(error):
                raise
            self._doc, self._root = self._rebuilt()  # it may be half applied
            raise BadOperation(f"not an update of a document: {error}") from None
        self._log.append(update)
        if len(self._log) >= _LOG:
            self._base, self._log = self._doc.get_update(), []
            self._size = 64 + len(self._base)
        self._size += len(update)
        if self._draft is not None:
            try:
                self._draft[0].apply_update(update)
            except BaseException as error:
                if not _refused(error):
                    raise
                self._drop_draft()  # its published edits will be delivered
            self._edits.clear()

    def _rebuilt(self) -> tuple[Doc[Any], Any]:
        doc, root = self._new(1)
        for update in (self._base, *self._log):
            if update:
                doc.apply_update(update)
        return doc, root

    def _drop_draft(self) -> None:
        if self._draft is not None:
            self._draft, self._number = None, 0
            self._generation += 1

    def state(self) -> bytes:
        state = msgspec.msgpack.encode(
            _DocumentState(self._doc.get_update(), [(*e, n) for e, n in self._numbers.items()])
        )
        self._size = len(state)
        return state

    def restore(self, state: bytes) -> None:
        try:
            saved = msgspec.msgpack.decode(state, type=_DocumentState)
        except UNREADABLE as error:
            raise BadOperation(f"not a state of a document: {error}") from None
        fresh = self._new(1)
        try:
            if saved.update:
                fresh[0].apply_update(saved.update)
        except BaseException as error:
            if not _refused(error):
                raise
            raise BadOperation(f"not the contents of a document: {error}") from None
        self._drop_draft()
        self._reset()
        self._doc, self._root = fresh
        self._base = saved.update
        self._numbers = {(owner, client): n for owner, client, n in saved.numbers}
        self._size = len(state)

    @property
    def size(self) -> int:
        return self._size


class Document(YjsReplica):
    """A text. Positions count characters (code points)."""

    kind = "document"
    root = "Text"
    operation = Edit

    @property
    def text(self) -> str:
        """The delivered text."""
        return str(self._root)

    @property
    def draft(self) -> str:
        """The text with own edits that are not delivered yet."""
        return str(self._draft[1]) if self._draft else self.text

    def splice(self, at: int, delete: int = 0, insert: str = "") -> bytes:
        """The operation that replaces `delete` characters at `at` by `insert`. The draft shows it at once."""
        return self.splices([(at, delete, insert)])

    def insert(self, at: int, text: str) -> bytes:
        """The operation that inserts text."""
        return self.splice(at, 0, text)

    def delete(self, at: int, count: int = 1) -> bytes:
        """The operation that deletes `count` characters."""
        return self.splice(at, count)

    def splices(self, patches: list[tuple[int, int, str]]) -> bytes:
        """Several edits as one operation, each on the result of the previous one."""

        def change(text: Text) -> None:
            for at, delete, insert in patches:
                now = str(text)
                if at < 0 or delete < 0 or at + delete > len(now):
                    raise UsageError(f"characters {at} to {at + delete} of a text of {len(now)}")
                first = len(now[:at].encode())  # pycrdt counts bytes of UTF-8
                if delete:
                    del text[first : first + len(now[at : at + delete].encode())]
                if insert:
                    text.insert(first, insert)

        return self._edit(change)


Place = Sequence[str | int]
"""Where something is in a `Json`: names in maps, positions in lists."""
MAX_DEPTH = 64
"""Of maps and lists in each other."""


class Json(YjsReplica):
    """Nested maps and lists; at first an empty map. Edits of different places merge, and so do insertions into one
    list. Of concurrent writes to one name one wins, the same everywhere, with all that is in it."""

    kind = "json"
    root = "Map"
    operation = Alter

    @property
    def value(self) -> dict[str, Any]:
        """A copy of what was delivered."""
        return cast("dict[str, Any]", _plain(self._root.to_py()))

    @property
    def draft(self) -> dict[str, Any]:
        """The same with own edits that are not delivered yet."""
        return cast("dict[str, Any]", _plain(self._draft[1].to_py())) if self._draft else self.value

    def set(self, at: Place, value: Any) -> bytes:
        """The operation that writes JSON there. Maps that are missing on the way are made."""

        def change(root: Any) -> None:
            inside, key, there = _find(root, at, make=True)
            if type(key) is int and not there:
                raise UsageError(f"{list(at)}: there is no such position in the list")
            inside[key] = _shared(value)

        return self._edit(change)

    def delete(self, at: Place) -> bytes:
        """The operation that takes out what is there."""

        def change(root: Any) -> None:
            inside, key, there = _find(root, at)
            if not there:
                raise UsageError(f"{list(at)}: nothing is there")
            del inside[key]

        return self._edit(change)

    def insert(self, at: Place, *values: Any) -> bytes:
        """The operation that inserts values into a list, before the position at the end of `at`."""

        def change(root: Any) -> None:
            inside, key, there = _find(root, at)
            if type(key) is not int or not (there or key == len(inside)):
                raise UsageError(f"{list(at)}: want a list and a position in it")
            for position, value in enumerate(values, key):
                inside.insert(position, _shared(value))

        return self._edit(change)

    def append(self, at: Place, *values: Any) -> bytes:
        """The operation that appends values to the list there, which is made if it is missing."""

        def change(root: Any) -> None:
            inside, key, there = _find(root, at, make=True)
            if not there:
                inside[key] = _shared([])
            if not isinstance(inside[key], pycrdt().Array):
                raise UsageError(f"{list(at)} is no list")
            inside[key].extend([_shared(value) for value in values])

        return self._edit(change)


def _find(root: Any, at: Place, make: bool = False) -> tuple[Any, Any, bool]:
    """The map or list that `at` leads into, the name or position in it, and whether something is there. `make`: maps
    that are missing on the way."""
    library, inside = pycrdt(), root
    for depth, key in enumerate(at, 1):
        if isinstance(key, str) and isinstance(inside, library.Map):
            there = key in inside
        elif type(key) is int and isinstance(inside, library.Array):
            there = 0 <= key < len(inside)
        else:
            raise UsageError(f"{list(at[: depth - 1])} is no {'map' if isinstance(key, str) else 'list'}")
        if depth == len(at):
            return inside, key, there
        if not there:
            if not make or type(key) is int:
                raise UsageError(f"{list(at[:depth])}: nothing is there")
            inside[key] = library.Map({})
        inside = inside[key]
    raise UsageError("the path is empty: name at least what is in the outermost map")


def _shared(value: Any, depth: int = 1) -> Any:
    """JSON as Yjs has it: maps and lists are shared ones, so that edits inside them merge."""
    library = pycrdt()
    if depth > MAX_DEPTH:
        raise UsageError(f"JSON nested more than {MAX_DEPTH} deep")
    match value:
        case dict() if all(isinstance(key, str) for key in value):
            return library.Map({key: _shared(one, depth + 1) for key, one in value.items()})
        case list() | tuple():
            return library.Array([_shared(one, depth + 1) for one in value])
        case None | bool() | str():
            return value
        case int() | float() if abs(value) <= 1 << 53:  # Yjs has JavaScript's numbers
            return value
    raise UsageError(f"no JSON (numbers up to 2**53, names are text): {str(value)[:80]!r}")


def _plain(value: Any) -> Any:
    """Names sorted, the same at every replica; whole numbers as such: Yjs gives floats."""
    match value:
        case dict():
            return {key: _plain(one) for key, one in sorted(value.items())}
        case list():
            return [_plain(one) for one in value]
        case float() if value.is_integer():
            return int(value)
    return value
