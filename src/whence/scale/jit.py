"""numba's decorators, typed: what they make of a function is called like the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

span = numba.prange
"""`range` whose steps may run on any thread, in any order."""


def kernel(function: F) -> F:
    """Compiled; the machine code is kept on disk, so that only the first start is slow."""
    return numba.njit(cache=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[no-any-return]


def inlined(function: F) -> F:
    """Compiled into its callers."""
    return numba.njit(cache=True, boundscheck=False, error_model="numpy", inline="always")(function)  # type: ignore[no-any-return]


def threaded(function: F) -> F:
    """Compiled, with every `span` spread over the threads."""
    return numba.njit(cache=True, parallel=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[no-any-return]
