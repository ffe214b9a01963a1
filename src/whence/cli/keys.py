"""`whence keys`: make a cluster's keys, issue them to its members, replace and revoke them."""

from __future__ import annotations

import argparse

from whence.errors import UsageError
from whence.live.net import keys as made

STEPS = (
    "a new CA and secret are accepted beside the old ones",
    "the new ones are used, and members have new certificates; the old ones are still accepted",
    "the old ones are gone",
)


def keys(args: argparse.Namespace) -> int:
    """`init` makes the operator's, `issue` a member's; `rotate` takes the next step to new ones, `revoke` one back."""
    if (args.step in ("issue", "revoke")) != (args.name is not None):
        raise UsageError(f"whence keys {args.step} DIR{' NAME' * (args.name is None)}: see whence keys --help")
    if args.step == "init":
        files = made.init(args.directory)
        following = f"keep {args.directory} to yourself; next: whence keys issue {args.directory} NAME"
    elif args.step == "rotate":
        step, files = made.rotate(args.directory)
        following = f"step {step} of 3: {STEPS[step - 1]}"
    elif args.step == "revoke":
        files = made.revoke(args.directory, args.name)
        following = "copy the file to every member's directory and have each read its keys again (kill -HUP)"
    else:
        files = made.issue(args.directory, args.name, args.role)
        bundle = args.directory / args.name
        following = f"copy {bundle} to the member's machine; there: whence node --tls DIRECTORY {args.name} ..."
    print(*files, following, sep="\n")
    return 0
