"""Lazy import: a command is imported when it runs. A live node does not need the simulator, nor the other way round."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from whence.errors import UsageError

EXTRAS = {
    "cryptography": ("keys, secrets and TLS need", "net"),
    "matplotlib": ("plots need", "paper"),
    "numba": ("the array engine and the audit need", "scale"),
    "numpy": ("the array engine and the audit need", "scale"),
    "pyarrow": ("Parquet traces need", "trace"),
    "pyspark": ("the data pipeline needs", "spark"),
}
"""Packages that a plain install lacks: what for, and the extra that brings them."""


def missing(error: ModuleNotFoundError, needs: str = "") -> UsageError | None:
    """What to install: the extra that the command `needs`, or else the one with that package. None: no package of an
    extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    what, extra = EXTRAS[package]
    return UsageError(f"{what} the {package} package: pip install 'whence[{needs or extra}]'")


def later(module: str, function: str, needs: str = "") -> Callable[[argparse.Namespace], int]:
    """The function of a module of this room, imported when it is called. `needs`: the extra with all its packages."""

    def call(args: argparse.Namespace) -> int:
        try:
            done: int = getattr(import_module(f"whence.cli.{module}"), function)(args)
        except ModuleNotFoundError as error:
            raise missing(error, needs) or error from None
        return done

    return call
