"""A shared text: a Yjs document (pycrdt) whose updates are published as events.

The **replica** holds exactly what was delivered, and snapshots are made of it. The **draft**, which exists only at
members that edit, is the replica plus own edits that are not delivered yet.

Updates of one editor are numbered. Causal order delivers them in that order; one that follows a lost one is dropped. A
snapshot is complete only if no update waits inside pycrdt for another editor's, which causal order ensures. Yjs
promises to handle both cases, but pycrdt 0.14 does not (found by test): updates of one editor out of order, or a state
taken while an update waits, lead to different texts.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from whence.errors import UsageError
from whence.live.objects.kernel import UNREADABLE, BadOperation, Edit, EventStamp, Operation, encode

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


class Document:
    """The replica, and the edits on it. Positions count characters (code points)."""

    kind: ClassVar[str] = "document"

    def __init__(self, name: str, me: str = "", client: int | None = None) -> None:
        self.name = name
        self.me = me
        self.dropped = 0
        """Updates that follow a lost one of the same editor: this replica lacks them."""
        self._client = client
        self._generation = 0
        self._reset()

    def _reset(self) -> None:
        self._doc, self._text = self._new(1)
        self._base, self._log = b"", list[bytes]()  # the replica as bytes, and the updates since then
        self._draft: tuple[Doc[Any], Text] | None = None
        self._edits: list[bytes] = []
        self._number = 0
        self._numbers: dict[Editor, int] = {}
        self._size = 64

    @staticmethod
    def _new(client: int) -> tuple[Doc[Any], Text]:
        library = pycrdt()
        doc = library.Doc(client_id=client)
        return doc, doc.get("text", type=library.Text)

    # -- reading ------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The delivered text."""
        return str(self._text)

    def update(self) -> bytes:
        """The delivered contents as one Yjs update."""
        update: bytes = self._doc.get_update()
        return update

    @property
    def draft(self) -> str:
        """The text with own edits that are not delivered yet."""
        return str(self._draft[1]) if self._draft else self.text

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
        doc, text = self._draft or self._begin_draft()
        self._edits.clear()
        with doc.transaction():
            for at, delete, insert in patches:
                now = str(text)
                if at < 0 or delete < 0 or at + delete > len(now):
                    raise UsageError(f"characters {at} to {at + delete} of a text of {len(now)}")
                first = len(now[:at].encode())  # pycrdt counts bytes of UTF-8
                if delete:
                    del text[first : first + len(now[at : at + delete].encode())]
                if insert:
                    text.insert(first, insert)
        return self._operation(self._edits.pop() if self._edits else doc.get_update(doc.get_state()))

    def unsent(self) -> bytes | None:
        """After a failed publish: one operation with all own edits that were not delivered, or None."""
        delivered = self._numbers.get((self.me, self.client), 0) if self._draft else 0
        if self._draft is None or self._number <= delivered:
            return None
        self._number = delivered
        return self._operation(self._draft[0].get_update(self._doc.get_state()))

    def _begin_draft(self) -> tuple[Doc[Any], Text]:
        doc, text = self._new(self.client)
        doc.apply_update(self._doc.get_update())
        doc.observe(lambda event: self._edits.append(event.update))
        self._draft = doc, text
        return doc, text

    def _operation(self, update: bytes) -> bytes:
        payload = encode(Edit(self.name, self.client, self._number + 1, update))
        self._number += 1
        return payload

    # -- Replica ------------------------------------------------------------------------------------------------

    def apply(self, stamp: EventStamp, operation: Operation) -> bool:
        if not isinstance(operation, Edit):
            raise BadOperation(f"{type(operation).__name__} on a document")
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
            self._doc, self._text = self._rebuilt()  # it may be half applied
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

    def _rebuilt(self) -> tuple[Doc[Any], Text]:
        doc, text = self._new(1)
        for update in (self._base, *self._log):
            if update:
                doc.apply_update(update)
        return doc, text

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
        self._doc, self._text = fresh
        self._base = saved.update
        self._numbers = {(owner, client): n for owner, client, n in saved.numbers}
        self._size = len(state)

    @property
    def size(self) -> int:
        return self._size
