"""A disk that is full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def fill(place: Path, but: int = 0) -> None:
    """Leave no room, but so many bytes."""
    with pytest.raises(OSError), (place / "ballast").open("wb", buffering=0) as ballast:
        while True:
            ballast.write(b"x" * 4096)
    os.truncate(place / "ballast", (place / "ballast").stat().st_size - but)
