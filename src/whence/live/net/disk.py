"""What a member keeps in its directory, so that after `kill -9` at any point it goes on where it was.

The **journal** holds five things that belong together: the member's checkpoint (clock, epoch), the frames
delivered by the member that the application has not yet processed, how many events it has processed, for an
application whose state lives in memory, that state, and the end of the member's recovery buffer. It is a log: each
batch appends one record, the last whole record counts. The contract with the runtime:

1. `save(checkpoint, delivered, arrived)` after every batch, **before** its frames are sent or handed to the
   application: events that others or the application have seen are on disk. What may leave earlier: `outbox.split`.
2. `processed(n)` when the application is done with n more events, that is, when it asks for the next one. An event
   that it was still busy with when the process died is shown to it again; no other is.
3. After a restart: `load()`, then `next_boot()`; the frames of `Saved.queue`, without their first `Saved.skip` events,
   go to the application before anything new.

A process may die between any two instructions: what `write` has taken survives that (the kernel has it). Against a loss
of power `save(sync=True)` waits for the disk; `processed` does not, so then some events since the last sync may be
shown again.

Files of the directory, all private to their owner (0600):

    lock                              held while a process uses the directory
    BOOT-GENERATION.journal           the log; the latest counts, the one before it is kept for people
    new                               the next generation while it is written: then synced, renamed, directory synced

A log begins with a record of everything; steps follow. All are compressed as one stream, so what a step shares with
those before it (most of a checkpoint, the names in a frame) is not written again. When the log is long, a new
generation begins. After any failure to write, nothing more is appended to a log whose end is unknown: the next write
begins a new generation with all that is not on disk yet. So a full disk costs time, not data.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final, NamedTuple

import msgspec

from whence.core.clock import AnyFrame
from whence.core.order.recovery import KEPT_BYTES, KEPT_FRAMES, RecoveryBuffer
from whence.core.ports import Deliver
from whence.errors import CorruptJournal, DiskError, JournalInUse, UsageError
from whence.files import why

MAGIC: Final = b"whence journal 2\n"

ROTATE_BYTES: Final = 4 << 20
"""A log longer than this, and than four times its first record, is followed by a new generation. Higher: fewer
rewrites. Lower: a shorter file to read at the start."""

_HEAD = Struct(">4sII")
"""Of a record: the log's random salt, by which records behind a torn one are found, and no payload looks like one; its
length; its check sum, which begins with the salt, too."""
_NAME = re.compile(r"(\d{16})-(\d{8})\.journal")


class _WholeRecord(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Everything: the first record of a generation. `base` is the number of events before those of `queue`."""

    cluster: str
    boot: int
    base: int
    done: int
    checkpoint: bytes | None
    state: bytes | None
    queue: tuple[tuple[AnyFrame, int], ...]
    kept: tuple[AnyFrame, ...] = ()
    """The recovery buffer without what is in `queue`."""


class _StepRecord(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """What changed: `number` counts the steps of a generation from 1."""

    number: int
    done: int
    checkpoint: bytes | None = None
    queue: tuple[tuple[AnyFrame, int], ...] = ()
    kept: tuple[AnyFrame, ...] = ()
    """Frames that came into the recovery buffer `B`."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_WholeRecord | _StepRecord).decode


class Saved(NamedTuple):
    """What a directory holds."""

    boot: int
    """The highest boot ever used from this directory; 0: none."""
    checkpoint: bytes | None
    """The member's checkpoint; None: the member has not joined yet."""
    state: bytes | None
    """The application's state as last handed to `processed` or `install`."""
    queue: tuple[Deliver, ...]
    """Delivered by the member, not yet processed by the application (since `state`, if there is one)."""
    skip: int
    """Events at the beginning of `queue` that have been processed."""
    done: int
    """Events ever processed."""
    warning: str = ""
    """What was wrong with the files, if anything."""
    kept: tuple[AnyFrame, ...] = ()
    """Frames that the member can give to others, oldest first."""


_spare: list[int] = []
"""File descriptors of this process kept for the disk: when connections have taken all others, a journal can still
begin a new file."""
SPARE = 2


def _keep_spare() -> None:
    with contextlib.suppress(OSError):
        while len(_spare) < SPARE:
            _spare.append(os.open(os.devnull, os.O_RDONLY))


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE) or not _spare:
            raise
        os.close(_spare.pop())
        return os.open(path, flags, 0o600)


class Files:
    """The few things a journal does with files; tests put faults here."""

    def lock(self, path: Path) -> int | None:
        """Take the lock; None if another process has it."""
        fd = _open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        with contextlib.suppress(OSError):  # only for the error message of the next one
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        return fd

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def create(self, path: Path) -> int:
        return _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        os.fsync(fd)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def sync_directory(self, directory: Path) -> None:
        fd = _open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
            _keep_spare()

    def write_all(self, fd: int, data: bytes) -> None:
        """A short write is followed by another, or by the reason for it."""
        left = memoryview(data)
        while left:
            left = left[self.write(fd, left) :]

    def replace(self, new: Path, path: Path, data: bytes) -> int:
        """A file that is there as a whole or not at all, whenever the process dies or the power fails. Returns it,
        open."""
        fd = self.create(new)
        try:
            self.write_all(fd, data)
            self.sync(fd)
            self.rename(new, path)
            self.sync_directory(path.parent)
        except OSError:
            self.close(fd)
            raise
        return fd

    def unlink(self, path: Path) -> None:
        path.unlink()

    def close(self, fd: int) -> None:
        os.close(fd)
        _keep_spare()


class Journal:
    """One member's directory. One process at a time may have it open. A journal that is damaged beyond what a crash can
    do is refused, because events may be seen twice."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        cluster: str = "",
        *,
        rotate_bytes: int = ROTATE_BYTES,
        files: Files | None = None,
    ) -> None:
        self.directory = Path(directory)
        self.cluster = cluster
        self.boot = 0
        self._files = files or Files()
        _keep_spare()
        self._rotate_bytes = rotate_bytes
        self._loaded: Saved | None = None
        self._fd: int | None = None
        self._generation = 0
        self._salt = b""
        self._deflate = zlib.compressobj(1)
        self._size = self._first = self._limit = self._number = 0
        self._base = self._done = self._end = 0  # events before the queue, processed, delivered
        self._queue: deque[tuple[AnyFrame, int]] = deque()
        self._kept: RecoveryBuffer[Any, AnyFrame] = RecoveryBuffer(KEPT_FRAMES, KEPT_BYTES)
        self._checkpoint: bytes | None = None
        self._state: bytes | None = None
        self._lock: int | None = self._take_directory()

    # -- reading ------------------------------------------------------------------------------------------------

    def load(self) -> Saved:
        """What the last life left here. Raises `CorruptJournal`, saying what to do."""
        if self._loaded is None:
            self._loaded = self._load()
        return self._loaded

    def _load(self) -> Saved:
        names = self._generations()
        if not names:
            return Saved(0, None, None, (), 0, 0)
        log = self._newest(names[-1])
        whole = log.whole
        assert whole is not None
        if whole.cluster != self.cluster:
            raise UsageError(f"{self.directory} belongs to the cluster {whole.cluster!r}, not to {self.cluster!r}")
        self.boot, self._generation = names[-1]
        self._base, self._done = whole.base, whole.done
        self._checkpoint, self._state = whole.checkpoint, whole.state
        self._end = whole.base
        self._keep(whole.kept)
        self._enqueue(whole.queue)
        for step in log.steps:
            self._done = step.done
            self._keep(step.kept)
            self._enqueue(step.queue)
            if step.checkpoint is not None:
                self._checkpoint = step.checkpoint
        self._drop_processed()
        queue = tuple(Deliver(frame, bool(said & 1), said >> 1) for frame, said in self._queue)
        skip = self._done - self._base
        warning = f"{self._path(*names[-1]).name}: {log.torn}" if log.torn else ""
        return Saved(self.boot, self._checkpoint, self._state, queue, skip, self._done, warning, tuple(self._kept))

    def _newest(self, name: tuple[int, int]) -> _Log:
        """The newest generation. A crash may have torn its end, and nothing else."""
        path = self._path(*name)
        try:
            log = _read(self._files.read(path))
        except OSError as error:
            raise self._error("read", path, error) from error
        if log.damage:
            raise CorruptJournal(
                f"{path}: {log.damage}. No crash does that: the disk or somebody else did. Without this directory the "
                "member joins as a new one"
            )
        return log

    def _generations(self) -> list[tuple[int, int]]:
        """(boot, generation) of every log, oldest first."""
        try:
            names = self._files.names(self.directory)
        except OSError as error:
            raise self._error("read", self.directory, error) from error
        return sorted((int(m[1]), int(m[2])) for m in map(_NAME.fullmatch, names) if m)

    # -- writing ------------------------------------------------------------------------------------------------

    def next_boot(self, at_least: int = 0) -> int:
        """A boot above all used from this directory, on disk when this returns. `at_least`: the time in milliseconds,
        which keeps boots rising when the directory is lost."""
        self.load()
        self.boot = max(self.boot + 1, at_least)
        self._generation = 0
        self._rotate()
        return self.boot

    def save(
        self,
        checkpoint: bytes,
        delivered: Sequence[Deliver] = (),
        arrived: Iterable[AnyFrame] = (),
        *,
        sync: bool = True,
    ) -> None:
        """The member's checkpoint after a batch, the frames it delivered in it, and those that are new in its recovery
        buffer. When this raises, nothing of the batch may be sent or handed on; what was handed in is remembered and
        written with the next success."""
        self._open_only()
        queue = tuple((d.frame, d.alert << 1 | d.over_gap) for d in delivered)
        self._checkpoint = checkpoint
        self._enqueue(queue)
        held = tuple(frame for frame in arrived if frame.key not in self._kept)
        self._keep(held)
        self._append(checkpoint, queue, sync, held)

    def processed(self, events: int, state: bytes | None = None) -> None:
        """The application is done with so many more events. `state`: its state with exactly all processed events in it,
        for an application that keeps it in memory; it is on disk when this returns."""
        self._open_only()
        if not 0 <= events <= self._end - self._done:
            raise UsageError(f"{events} events processed, but only {self._end - self._done} were there to be")
        self._done += events
        self._drop_processed()
        if state is not None:
            self._state = state
            self._rotate()
        elif events:
            self._append(None, (), False)

    def sync(self) -> None:
        """Wait until the disk has all that was handed in."""
        self._open_only()
        if self._fd is None:
            self._rotate()
            return
        try:
            self._files.sync(self._fd)
        except OSError as error:
            self._close_log()
            raise self._error("write", self._path(self.boot, self._generation), error) from error

    @property
    def rotates(self) -> bool:
        """The next write begins a new generation: it takes longer than an append."""
        return self._fd is None or self._size > self._limit

    @property
    def first(self) -> int:
        """Bytes of the first record of this generation: of everything."""
        return self._first

    @property
    def grown(self) -> int:
        """Bytes appended to this generation since."""
        return self._size - self._first

    def close(self) -> None:
        """Give the directory free. Nothing is written: it all is already."""
        self._close_log()
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the log ------------------------------------------------------------------------------------------------

    def _append(
        self,
        checkpoint: bytes | None,
        queue: tuple[tuple[AnyFrame, int], ...],
        sync: bool,
        held: tuple[AnyFrame, ...] = (),
    ) -> None:
        if self._fd is None or self._size > self._limit:
            self._rotate()
            return
        self._number += 1
        step = _StepRecord(self._number, self._done, checkpoint, queue, held)
        data = _record(step, self._salt, self._deflate)
        try:
            self._files.write_all(self._fd, data)
        except OSError as error:
            self._close_log()
            raise self._error("write", self._path(self.boot, self._generation), error) from error
        self._size += len(data)
        if sync:
            self.sync()

    def _rotate(self) -> None:
        """Begin a new generation with all there is."""
        self._close_log()
        new, path = self.directory / "new", self._path(self.boot, self._generation + 1)
        queued = {frame.key for frame, _ in self._queue}
        kept = tuple(frame for frame in self._kept if frame.key not in queued)
        queue = tuple(self._queue)
        whole = _WholeRecord(
            self.cluster, self.boot, self._base, self._done, self._checkpoint, self._state, queue, kept
        )
        self._salt, self._deflate = os.urandom(4), zlib.compressobj(1)
        data = MAGIC + self._salt + _record(whole, self._salt, self._deflate)
        try:
            self._fd = self._files.replace(new, path, data)
        except OSError as error:
            raise self._error("write", path, error) from error
        self._generation += 1
        self._number = 0
        self._size = self._first = len(data)
        self._limit = max(self._rotate_bytes, 4 * len(data))
        with contextlib.suppress(OSError, DiskError):  # they are in nobody's way
            for old in self._generations()[:-2]:
                self._files.unlink(self._path(*old))

    def _enqueue(self, queue: Sequence[tuple[AnyFrame, int]]) -> None:
        self._queue.extend(queue)
        self._keep(frame for frame, _ in queue)
        self._end += sum(frame.count for frame, _ in queue)

    def _keep(self, frames: Iterable[AnyFrame]) -> None:
        for frame in frames:
            self._kept.add(frame.key, frame)

    def _drop_processed(self) -> None:
        while self._queue and self._base + self._queue[0][0].count <= self._done:
            self._base += self._queue.popleft()[0].count

    def _close_log(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with contextlib.suppress(OSError):
                self._files.close(fd)

    def _take_directory(self) -> int:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = self._files.lock(self.directory / "lock")
        except OSError as error:
            raise self._error("use", self.directory, error) from error
        if lock is None:
            holder = (self.directory / "lock").read_text(encoding="utf-8", errors="replace").strip()
            raise JournalInUse(
                f"{self.directory} is in use by process {holder or 'unknown'}: each member needs a directory of its own"
            )
        return lock

    def _open_only(self) -> None:
        if self._lock is None:
            raise UsageError(f"the journal {self.directory} is closed")
        if not self.boot or self._loaded is None:
            raise UsageError("first load() the journal and take its next_boot()")

    def _path(self, boot: int, generation: int) -> Path:
        return self.directory / f"{boot:016d}-{generation:08d}.journal"

    def _error(self, what: str, path: Path, error: OSError) -> DiskError:
        return DiskError(f"cannot {what} {path}: {why(error)}")


class _Log(NamedTuple):
    """A generation as it was read. `torn`: a crash cut its end off. `damage`: something a crash does not do."""

    whole: _WholeRecord | None
    steps: list[_StepRecord]
    torn: str = ""
    damage: str = ""


def _record(body: _WholeRecord | _StepRecord, salt: bytes, deflate: zlib._Compress) -> bytes:
    data = deflate.compress(_encode(body)) + deflate.flush(zlib.Z_SYNC_FLUSH)
    return _HEAD.pack(salt, len(data), _check(data, salt)) + data


def _check(data: bytes | memoryview, salt: bytes) -> int:
    return zlib.crc32(data, int.from_bytes(salt, "big"))


def _record_at(data: bytes, at: int, salt: bytes) -> memoryview | None:
    """The compressed record that begins here; None if there is none."""
    if at + _HEAD.size > len(data):
        return None
    mark, length, check = _HEAD.unpack_from(data, at)
    start = at + _HEAD.size
    if mark != salt or length > len(data) - start:
        return None
    body = memoryview(data)[start : start + length]
    return body if _check(body, salt) == check else None


def _read(data: bytes) -> _Log:
    """A log, as far as it is whole."""
    if not data.startswith(MAGIC):
        return _Log(None, [], damage="not a journal, or one of another version")
    at = len(MAGIC) + 4
    salt, inflate = data[len(MAGIC) : at], zlib.decompressobj()
    whole: _WholeRecord | None = None
    steps: list[_StepRecord] = []
    while at < len(data):
        body = _record_at(data, at, salt)
        try:
            found = None if body is None else _decode(inflate.decompress(body))
        except (msgspec.DecodeError, UnicodeDecodeError, zlib.error):
            found = None
        if body is not None and isinstance(found, _WholeRecord) and whole is None:
            whole = found
        elif (
            body is not None and isinstance(found, _StepRecord) and found.number == len(steps) + 1 and whole is not None
        ):
            steps.append(found)
        else:
            break
        at += _HEAD.size + len(body)
    if whole is None:
        return _Log(None, [], damage="the first record is damaged")
    return _Log(whole, steps) if at >= len(data) else _Log(whole, steps, *_what_is_wrong(data, at, salt))


def _what_is_wrong(data: bytes, at: int, salt: bytes) -> tuple[str, str]:
    """(torn, damage): behind what a crash has torn there is nothing."""
    later = data.find(salt, at)
    while later >= 0:
        if _record_at(data, later, salt) is not None:
            return "", f"damaged at byte {at}, and goes on at byte {later}"
        later = data.find(salt, later + 1)
    return f"the last {len(data) - at} bytes are half a record: cut off", ""
