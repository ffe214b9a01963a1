"""Files, gzipped or not, and errors that say where in them."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from whence.errors import HistoryError

SHOWN = 80
"""Characters of a bad line that an error shows."""


def content(path: Path) -> bytes:
    """The bytes of a file, decompressed."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise HistoryError(f"{path}: cannot be read: {reason}") from None


def decoded(path: Path, raw: bytes) -> str:
    """As UTF-8, without a byte order mark."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise HistoryError(
            f"{path}, line {line}: no text (byte {raw[error.start]:#04x}); is it another format?"
        ) from None


def bad_line(path: Path | str, line: int, text: str, wanted: str) -> HistoryError:
    """The error for a line that does not parse."""
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return HistoryError(f"{path}, line {line}: {shown!r} is not {wanted}")
