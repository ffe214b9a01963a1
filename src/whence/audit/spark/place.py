"""Files anywhere: a path of this machine, or a URI that `pyarrow.fs` knows (`s3://`, `s3a://`, `gs://`, `abfss://`,
`hdfs://`, `file://`).

A place is text: an absolute path for this machine, a URI for the rest. So it travels to tasks as it is. Credentials are
those of the machine that reads or writes (environment, profile, role). `AWS_ENDPOINT_URL_S3` or `AWS_ENDPOINT_URL`
names an S3 server other than Amazon's; so does `?endpoint_override=...` in the URI.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from whence.errors import TraceError, UsageError
from whence.files import write_whole

Anywhere = str | os.PathLike[str]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_GLOB: Final = re.compile(r"[*?\[]")
_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss", "viewfs": "hdfs"}
"""Schemes of Hadoop, and what Arrow calls them."""
_LOCAL: Final = fs.LocalFileSystem()


class TraceFile(NamedTuple):
    """A file."""

    place: str
    size: int
    mtime_ns: int


def place_of(path: Anywhere) -> str:
    """Text that means the same everywhere: an absolute path, or a URI."""
    text = os.fspath(path)
    if not _SCHEME.match(text):
        return str(Path(text).absolute())
    return text.removeprefix("file://") if text.startswith("file://") else text


def is_local(place: Anywhere) -> bool:
    """It is on this machine."""
    return not _SCHEME.match(os.fspath(place)) or os.fspath(place).startswith("file://")


def join(place: str, *names: str) -> str:
    """A place below another; what follows a `?` stays behind."""
    before, mark, query = place.partition("?") if not is_local(place) else (place, "", "")
    return "/".join([before.rstrip("/"), *names]) + mark + query


def filesystem(place: str) -> tuple[fs.FileSystem, str]:
    """The file system of a place, and its path there."""
    if is_local(place):
        return _LOCAL, place_of(place)
    parts = urlsplit(place)
    scheme = _SAME.get(parts.scheme, parts.scheme)
    root = f"{scheme}://{parts.netloc}"
    return _remote(root, parts.query), _path(scheme, parts.netloc, parts.path)


def _path(scheme: str, where: str, path: str) -> str:
    if scheme == "hdfs":
        return path or "/"
    bucket = where.rpartition("@")[0] if scheme == "abfss" else where.rpartition("@")[2]
    return f"{bucket}{path}".rstrip("/")


@lru_cache(maxsize=16)
def _remote(root: str, query: str) -> fs.FileSystem:
    try:
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        if root.startswith("s3://") and not query and endpoint:
            return fs.S3FileSystem(endpoint_override=endpoint)
        return fs.FileSystem.from_uri(f"{root}/{'?' + query if query else ''}")[0]
    except (pa.ArrowException, OSError, ImportError, ValueError) as error:
        said = " ".join(str(error).split())[:300]
        raise UsageError(
            f"{root}: no file system for it ({said}). Known are s3://, s3a://, gs://, abfss://, hdfs:// (with Hadoop's "
            "libhdfs) and file://; others can be read by Spark itself: audit(spark.read...), docs/pipeline.md"
        ) from None


# -- reading


def opened(place: str) -> BinaryIO:
    """A file to read, with `seek`."""
    if is_local(place):
        return Path(place).open("rb")
    system, path = filesystem(place)
    return cast(BinaryIO, io.BufferedReader(cast(Any, system.open_input_file(path)), 1 << 20))


def parquet(place: str) -> Any:
    """What `pyarrow.parquet` takes as a file."""
    system, path = filesystem(place)
    return system.open_input_file(path)


def read_bytes(place: str) -> bytes:
    """All of a file. FileNotFoundError when there is none."""
    with opened(place) as file:
        return file.read()


def found(path: Anywhere, without: str = "") -> list[TraceFile]:
    """The file at a place, or all files below a directory or of a glob, sorted; hidden ones (`.` and `_` in front) are
    passed over, and directories below it that hold a file named `without`. TraceError when there is no such place."""
    place = place_of(path)
    system, at = filesystem(place)
    try:
        info = system.get_file_info(at)
        if info.type != fs.FileType.NotFound:
            infos = [info] if info.is_file else _visible(system, at, without)
        elif _GLOB.search(at):
            below = _visible(system, _GLOB.split(at)[0].rpartition("/")[0], without)
            infos = [i for i in below if _matches(i.path, at)]
            if not infos:
                raise TraceError(f"{path}: no file matches")
        else:
            raise TraceError(f"{path}: no such file or directory")
    except (OSError, pa.ArrowException) as error:
        said = " ".join(str(getattr(error, "strerror", None) or error).split())[:300]
        raise TraceError(f"{path}: cannot read: {said}") from None
    return [TraceFile(_named(place, i.path), i.size, i.mtime_ns or 0) for i in sorted(infos, key=attrgetter("path"))]


def _named(place: str, path: str) -> str:
    """The place of a path in the file system of another place."""
    if is_local(place):
        return path
    parts = urlsplit(place)
    bucket = _path(_SAME.get(parts.scheme, parts.scheme), parts.netloc, "")
    below = path.removeprefix(bucket).lstrip("/")
    return f"{parts.scheme}://{parts.netloc}/{below}{'?' + parts.query if parts.query else ''}"


def _visible(system: fs.FileSystem, base: str, without: str) -> list[fs.FileInfo]:
    select = fs.FileSelector(base or "/", recursive=True, allow_not_found=True)
    infos = [i for i in cast(Iterable[fs.FileInfo], system.get_file_info(select)) if i.is_file]
    tables = {i.path.rpartition("/")[0] + "/" for i in infos if without and i.base_name == without}
    tables.discard(base.rstrip("/") + "/")
    infos = [i for i in infos if not i.path.startswith(tuple(tables))]
    names = [i.path[len(base) :].lstrip("/").split("/") for i in infos]
    return [i for i, parts in zip(infos, names, strict=True) if all(part[:1] not in ("", ".", "_") for part in parts)]


def _matches(path: str, pattern: str) -> bool:
    """A glob: `*` stays within a name, `**` does not; what it matches may be a directory with the file below."""
    have, want = path.split("/"), pattern.split("/")
    if "**" in want:
        return fnmatchcase(path, pattern.replace("**/", "*").replace("**", "*"))
    return len(have) >= len(want) and all(fnmatchcase(h, w) for h, w in zip(have, want, strict=False))


# -- writing


def make_directory(place: str) -> None:
    """A store without directories needs none."""
    system, path = filesystem(place)
    system.create_dir(path, recursive=True)


def write_bytes(place: str, data: bytes) -> None:
    """A file of this content. On a store it appears when it is complete; on a disk not."""
    with output(place) as file:
        file.write(data)


def replace_bytes(place: str, data: bytes) -> None:
    """A file of this content, all of it or what was there before."""
    if is_local(place):
        write_whole(place_of(place), data, sync=True)
    else:
        write_bytes(place, data)


def output(place: str) -> Any:
    """A file to write."""
    system, path = filesystem(place)
    return system.open_output_stream(path)


def move(place: str, to: str) -> None:
    """A file, within a file system."""
    system, path = filesystem(place)
    system.move(path, filesystem(to)[1])


def remove(place: str) -> None:
    """A file that is there."""
    system, path = filesystem(place)
    system.delete_file(path)


def remove_directory(place: str) -> None:
    """A directory with all that is in it, if it is there."""
    system, path = filesystem(place)
    if system.get_file_info(path).type == fs.FileType.Directory:
        system.delete_dir(path)


def there(place: str) -> bool:
    """There is a file or a directory, or a link, wherever it leads."""
    system, path = filesystem(place)
    return is_link(place) or system.get_file_info(path).type != fs.FileType.NotFound


def is_link(place: str) -> bool:
    """It is a symbolic link of this machine."""
    return is_local(place) and Path(place_of(place)).is_symlink()


def names_in(place: str) -> list[str]:
    """The names of the files in a directory; none when there is no such directory."""
    system, path = filesystem(place)
    infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    return sorted(i.base_name for i in infos if i.is_file)
