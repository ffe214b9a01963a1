"""The command `whence`: parse, call, print. Its exit codes:

0: done and clean. 1: done, and an order or an invariant was violated. 2: bad input (one line says why). 3: done,
nothing was violated, but something cannot be judged. 130: interrupted.
"""

from __future__ import annotations

import argparse
import logging
import os
import stat
import sys
from collections.abc import Sequence
from importlib import import_module

CLEAN, VIOLATED, BAD_INPUT, DOUBT, INTERRUPTED = 0, 1, 2, 3, 130

EXTRAS = {
    "cryptography": ("keys, secrets and TLS need", "net"),
    "matplotlib": ("plots need", "paper"),
    "numba": ("the array engine and the audit need", "scale"),
    "numpy": ("the array engine and the audit need", "scale"),
    "pyarrow": ("Parquet traces need", "trace"),
    "pyspark": ("the data pipeline needs", "spark"),
    "uvicorn": ("serving rooms needs", "web"),
    "websockets": ("serving rooms needs", "web"),
}
"""Packages that a plain install lacks: what for, and the extra that brings them."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit code. Imports happen in here, so that Ctrl-C meanwhile is no traceback."""
    try:
        return _main(argv)
    except KeyboardInterrupt:
        print("whence: interrupted", file=sys.stderr)
        return INTERRUPTED


def _main(argv: Sequence[str] | None) -> int:
    from whence.cli.parser import parser
    from whence.errors import WhenceError
    from whence.files import why

    args = parser().parse_args(argv)
    _log(args)
    try:
        code = call(args)
        sys.stdout.flush()
        return code
    except WhenceError as error:
        print(f"whence: {error}", file=sys.stderr)
    except BrokenPipeError:  # `whence ... | head`
        _close_output()
        return CLEAN
    except OSError as error:  # a file that cannot be written, a port that is in use
        where = error.filename or _full_output() or getattr(args, "out", None)
        print(f"whence: {f'{where}: ' if where else ''}{why(error)}", file=sys.stderr)
    return BAD_INPUT


def call(args: argparse.Namespace) -> int:
    """The command, imported when it runs: a live node does not need the simulator, nor the other way round."""
    try:
        code: int = getattr(import_module(f"whence.cli.{args.module}"), args.command)(args)
    except ModuleNotFoundError as error:
        raise missing(error, args.needs) from None
    return code


def missing(error: ModuleNotFoundError, needs: str = "") -> Exception:
    """What to install: the extra that the command `needs`, or else the one with that package."""
    from whence.errors import UsageError

    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return error
    what, extra = EXTRAS[package]
    wanted = "" if package == "pyspark" else needs
    return UsageError(f"{what} the {package} package: pip install 'whence[{wanted or extra}]'")


def _full_output() -> str:
    """A name for standard output, if that is what cannot be written: then writing one more byte fails, too."""
    try:
        sys.stdout.flush()
        if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            os.write(sys.stdout.fileno(), b"\n")
    except OSError:
        _close_output()
        return "standard output"
    return ""


def _close_output() -> None:
    """Python flushes standard output again when it exits; that must not fail a second time."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _log(args: argparse.Namespace) -> None:
    """The commands show warnings themselves; -v shows what is below them."""
    if not args.talk:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: record.levelno < logging.WARNING)
    logger = logging.getLogger("whence")
    logger.setLevel(logging.INFO if args.talk == 1 else logging.DEBUG)
    logger.addHandler(handler)


__all__ = ["main"]
