"""Writing a file so that others see the old one or the new one, never half of one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, sync: bool = False, private: bool = False) -> Iterator[Path]:
    """A path beside `path` to write to, with the same suffix. It takes the place of `path` when the block ends, and is
    removed if the block raises. `sync`: it is on disk before that, so that it survives a loss of power. `private`: only
    the owner of the process may read it."""
    target = Path(path)
    partial = target.with_name(f".{target.stem}.{os.getpid()}.partial{target.suffix}")
    partial.unlink(missing_ok=True)
    try:
        if private:
            partial.touch(mode=0o600)
        yield partial
        if sync:
            _sync(partial, os.O_RDONLY)
        partial.replace(target)
        if sync:
            _sync(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(path: str | os.PathLike[str], data: bytes | str, *, sync: bool = False, private: bool = False) -> None:
    """The file has exactly these contents, or what it had before."""
    with replacing(path, sync=sync, private=private) as partial:
        partial.write_bytes(data.encode() if isinstance(data, str) else data)


def why(error: OSError) -> str:
    """What it says, for people: "File exists" is no help to whoever wants a directory."""
    return "a file is there, want a directory" if isinstance(error, FileExistsError) else error.strerror or str(error)


def file_name(text: str) -> str:
    """The text as the name of a file or a directory."""
    return "".join(c if c.isalnum() or c in "._-" else f"%{ord(c):02x}" for c in text).lstrip(".") or "%"


def _sync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
