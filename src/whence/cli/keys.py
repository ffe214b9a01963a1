"""`whence keys`: make a cluster's keys, issue them to its members, replace and revoke them."""

from __future__ import annotations

import argparse

from whence.errors import UsageError
from whence.live.net import keys as made

STEPS = ("a new CA and secret are accepted", "they are in use, the old ones still accepted", "the old ones are gone")
"""Of a rotation."""


def keys(args: argparse.Namespace) -> int:
    """`init` makes the operator's, `issue` a member's; `rotate` takes the next step to new ones, `revoke` one back."""
    root, name = args.directory, args.name
    if (args.step in ("issue", "revoke")) != (name is not None):
        raise UsageError(f"whence keys {args.step} DIR{' NAME' * (name is None)}: see whence keys --help")
    if args.role != "publisher" and args.step != "issue":
        raise UsageError(f"--role is for `whence keys issue`, not for {args.step}")
    following = "copy each to its member, and have all of them read their keys again (kill -HUP)"
    if args.step == "init":
        files = made.init(root)
        following = f"keep {root} to yourself; next: whence keys issue {root} NAME"
    elif args.step == "issue":
        files = made.issue(root, name, args.role)
        following = f"copy {root / name} to the member's machine; there: whence node --tls DIRECTORY {name} ..."
    elif args.step == "revoke":
        files = made.revoke(root, name)
    else:
        step, files = made.rotate(root)
        following = f"step {step} of 3, {STEPS[step - 1]}: {following}{'; then again: rotate' * (step < 3)}"
    print(*files, following, sep="\n")
    return 0
