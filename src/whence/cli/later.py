"""A command is imported when it runs: a live node has no use for the simulator, nor the simulator for sockets."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module

from whence.errors import UsageError


def later(module: str, function: str) -> Callable[[argparse.Namespace], int]:
    """The function of a module of this room, imported when it is called."""

    def call(args: argparse.Namespace) -> int:
        try:
            done: int = getattr(import_module(f"whence.cli.{module}"), function)(args)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "cryptography":
                raise
            raise UsageError("keys, secrets and TLS need the cryptography package: pip install 'whence[net]'") from None
        return done

    return call
