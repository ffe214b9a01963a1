"""numba's decorator with a type, so that the rest of the room stays typed; and a way to run a few rows without it.

numba is imported when something is compiled first: that takes a third of a second, as long as a small audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, update_wrapper
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Small = NDArray[np.int8]

_interpreted: ContextVar[bool] = ContextVar("interpreted", default=False)


class _Compiled:
    """A function that is interpreted or compiled, as the caller wants it. Compiled functions call each other without
    passing here: numba takes this object for the dispatcher that it stands for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        if _interpreted.get():
            return self._function(*args)
        try:
            return self._machine(*args)
        except AttributeError as error:
            if "Can't get attribute" not in str(error):
                raise
        # What another version has left on disk names a type that is gone. numba compares dates after it has read it.
        for index in Path(self._machine.stats.cache_path).glob("*.nbi"):
            index.unlink(missing_ok=True)
        return self._machine(*args)

    @cached_property
    def _machine(self) -> Any:
        import numba

        return cast(Any, numba.njit(cache=True, nogil=True))(self._function)

    @property
    def _numba_type_(self) -> Any:
        return self._machine._numba_type_


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Machine code, made once and kept on disk; in it, other threads may run."""
    return cast(Callable[P, R], _Compiled(function))


@contextmanager
def interpreted(yes: bool = True) -> Iterator[None]:
    """Meanwhile this thread interprets the kernel. Compiling it, the first time on a machine, takes 20 s and more: for
    a few thousand rows that is not worth it."""
    before = _interpreted.set(yes)
    try:
        yield
    finally:
        _interpreted.reset(before)
