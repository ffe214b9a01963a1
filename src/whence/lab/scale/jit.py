"""numba's decorators, with types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np

from whence.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

span = numba.prange
"""`range` whose steps may run on any thread, in any order."""
thread: Any = numba.get_thread_id  # type: ignore[attr-defined]
"""The number of the thread that runs a step."""


wide: Any = np.int64
"""A number of 64 bits, in kernels; its type is no matter outside."""
Progress = Callable[[float, str], None]
"""Called with the share that is done, and the current step."""


def use_threads(threads: int | None) -> None:
    """As many as given, or all."""
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if threads is not None and not 1 <= threads <= most:
        raise ConfigError(f"threads: {threads} is not from 1 to {most}")
    numba.set_num_threads(threads or most)


def kernel(function: F) -> F:
    """Compile a function. The machine code is cached on disk."""
    return numba.njit(cache=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[return-value]


def threaded(function: F) -> F:
    """Compile a function; each `span` runs on all threads."""
    return numba.njit(cache=True, parallel=True, boundscheck=False, error_model="numpy")(function)  # type: ignore[return-value]
