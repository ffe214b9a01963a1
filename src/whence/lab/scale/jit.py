"""numba's decorators, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

span = numba.prange
"""`range` whose steps may run on any thread, in any order."""


def kernel(function: F) -> F:
    """Compile a function. The machine code is cached on disk."""
    return numba.njit(cache=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[return-value]


def threaded(function: F) -> F:
    """Compile a function; each `span` runs on all threads."""
    return numba.njit(cache=True, parallel=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[return-value]
