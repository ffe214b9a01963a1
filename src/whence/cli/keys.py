"""`whence keys`: make a cluster's keys, and issue them to its members."""

from __future__ import annotations

import argparse
from pathlib import Path

from whence.live.net import keys


def init(args: argparse.Namespace) -> int:
    """The operator's keys."""
    files = keys.init(args.directory)
    _show(files)
    print(f"keep {args.directory} to yourself; next: whence keys issue {args.directory} NAME")
    return 0


def issue(args: argparse.Namespace) -> int:
    """One member's keys."""
    files = keys.issue(args.directory, args.name, args.role)
    _show(files)
    bundle = Path(args.directory) / args.name
    print(f"copy {bundle} to the member's machine; there: whence node --tls DIRECTORY {args.name} ...")
    return 0


def _show(files: list[Path]) -> None:
    for file in files:
        print(file)
