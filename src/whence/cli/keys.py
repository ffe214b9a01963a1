"""`whence keys`: make a cluster's keys, and issue them to its members."""

from __future__ import annotations

import argparse

from whence.errors import UsageError
from whence.live.net import keys as made


def keys(args: argparse.Namespace) -> int:
    """`init`: the operator's keys; `issue`: one member's."""
    if (args.step == "issue") != (args.name is not None):
        raise UsageError("whence keys init DIR makes a cluster's keys, whence keys issue DIR NAME a member's")
    if args.step == "init":
        files = made.init(args.directory)
        following = f"keep {args.directory} to yourself; next: whence keys issue {args.directory} NAME"
    else:
        files = made.issue(args.directory, args.name, args.role)
        bundle = args.directory / args.name
        following = f"copy {bundle} to the member's machine; there: whence node --tls DIRECTORY {args.name} ..."
    print(*files, following, sep="\n")
    return 0
