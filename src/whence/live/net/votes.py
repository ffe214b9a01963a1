"""Where a voter's memory is kept: some KB that have to outlive the process (docs/ring.md, rules C3 and C9).

A member with a directory has them in its journal. Otherwise they are in a file of their own, by default in the user's
state directory. One process at a time may use it: a copy of it would be a voter that has forgotten its promises.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from whence.core.ring.context import Memory
from whence.errors import CorruptJournal, DiskError, JournalInUse
from whence.files import file_name

if TYPE_CHECKING:
    from whence.live.net.disk import Files

MAGIC = b"whence vote 1\n"


def state_directory(cluster: str, address: str) -> Path:
    """`$XDG_STATE_HOME/whence/CLUSTER/ADDRESS`: others look for a voter at its address."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "whence" / file_name(cluster) / file_name(address)


def pack(memory: Memory) -> bytes:
    data = msgspec.msgpack.encode(memory)
    return MAGIC + zlib.crc32(data).to_bytes(4, "big") + data


def unpack(data: bytes, where: str) -> Memory:
    """Raises CorruptJournal, saying what to do."""
    body = data[len(MAGIC) + 4 :]
    if data.startswith(MAGIC) and zlib.crc32(body).to_bytes(4, "big") == data[len(MAGIC) : len(MAGIC) + 4]:
        try:
            return msgspec.msgpack.decode(body, type=Memory)
        except msgspec.MsgspecError:
            pass
    raise CorruptJournal(
        f"{where} is no voter's memory, or a damaged one. Without it this process is a new voter: delete it if the "
        "cluster has others, or else create the ring again with `whence node --force`"
    )


class Votes:
    """In a directory of its own, locked."""

    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.directory = directory
        from whence.live.net.disk import Files  # lazily: it takes memory

        self._files = files or Files()
        self._lock: int | None = None
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._files.lock(directory / "lock")
        except OSError as error:
            raise DiskError(f"cannot keep a voter's memory in {directory}: {error.strerror or error}") from error
        if self._lock is None:
            raise JournalInUse(f"{directory} is in use by another process: each member needs a memory of its own")

    def load(self) -> Memory | None:
        path = self.directory / "vote"
        try:
            return unpack(path.read_bytes(), str(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskError(f"cannot read {path}: {error.strerror or error}") from error

    def save(self, memory: Memory) -> None:
        path = self.directory / "vote"
        try:
            self._files.close(self._files.replace(self.directory / "vote.new", path, pack(memory)))
        except OSError as error:
            raise DiskError(f"cannot write {path}: {error.strerror or error}") from error

    def close(self) -> None:
        if self._lock is not None:
            self._files.close(self._lock)
            self._lock = None
