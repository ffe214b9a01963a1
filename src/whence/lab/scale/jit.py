"""numba's decorators, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from numba.core import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

span = numba.prange
"""`range` whose steps may run on any thread, in any order."""


def kernel(function: F) -> F:
    """Compile a function. The machine code is cached on disk."""
    return numba.njit(cache=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[return-value]


def threaded(function: F) -> F:
    """Compile a function; each `span` runs on all threads."""
    return numba.njit(cache=True, parallel=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[return-value]


@intrinsic
def _lowest(context, word):  # type: ignore[no-untyped-def]

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.cttz(args[0], context.get_constant(types.boolean, False))

    return types.int64(types.uint64), build


lowest: Any = _lowest
"""The index of the lowest set bit of a 64-bit word (64 if there is none)."""
