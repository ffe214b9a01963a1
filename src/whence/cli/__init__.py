"""The command `whence`: parse, call, print."""

from whence.cli.main import main

__all__ = ["main"]
