"""numba's decorator with a type, so that the rest of the room stays typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Small = NDArray[np.int8]


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Machine code, made once and kept on disk; in it, other threads may run."""
    return cast(Callable[P, R], cast(Any, numba.njit(cache=True, nogil=True))(function))
