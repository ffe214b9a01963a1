"""A command is imported when it runs: a live node has no use for the simulator, nor the simulator for sockets."""

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


def missing(error: ModuleNotFoundError) -> UsageError | None:
    """What to install; None: it is no package of an extra."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    what, extra = EXTRAS[package]
    return UsageError(f"{what} the {package} package: pip install 'whence[{extra}]'")


def later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """The function of a module of this room, imported when it is called."""

    def call(args: argparse.Namespace) -> int:
        try:
            done: int = getattr(import_module(f"whence.cli.{module}"), function)(args)
        except ModuleNotFoundError as error:
            raise missing(error) or error from None
        return done

    return call
