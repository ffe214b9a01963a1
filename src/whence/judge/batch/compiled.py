"""numba's decorator with a type, so that the rest of the room stays typed; and a way to run a few rows without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np
from numba.core.registry import CPUDispatcher
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Small = NDArray[np.int8]

_interpreted: ContextVar[bool] = ContextVar("interpreted", default=False)


class _Switchable(CPUDispatcher):
    """A compiled function that can also be interpreted. Compiled functions call each other without passing here."""

    def __call__(self, *args: Any) -> Any:
        if _interpreted.get():
            return self.py_func(*args)
        return super().__call__(*args)


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Machine code, made once and kept on disk; in it, other threads may run."""
    made = cast(Any, numba.njit(cache=True, nogil=True))(function)
    if isinstance(made, CPUDispatcher):  # not with NUMBA_DISABLE_JIT
        made.__class__ = _Switchable
    return cast(Callable[P, R], made)


@contextmanager
def interpreted(yes: bool = True) -> Iterator[None]:
    """Meanwhile this thread interprets the kernel. Compiling it, the first time on a machine, takes 20 s and more: for
    a few thousand rows that is not worth it."""
    before = _interpreted.set(yes)
    try:
        yield
    finally:
        _interpreted.reset(before)
