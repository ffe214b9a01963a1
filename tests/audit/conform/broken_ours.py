"""Ours, broken on purpose: `python broken_ours.py MISTAKE` is `whence conform --adapter` with one mistake in it."""

from __future__ import annotations

import sys

from whence.cli import adapter as ours
from whence.core.clock import NEVER
from whence.core.member import Member
from whence.core.ports import Input, Output, Publish

ORDER = {"no-merge": "reliable", "no-order": "fifo", "early": "causal"}
"""`no-order`: a member in fifo order, and `early`: one that skips what it cannot get in time, that claim to be
reliable."""


class NoMerge(Member):
    """What it publishes depends on nothing that others have published."""

    def handle(self, input: Input, now: int) -> list[Output]:
        if not isinstance(input, Publish):
            return super().handle(input, now)
        clock = self.ordering.clock
        saved = list(clock.T)
        clock.T[:] = [entry if ticket == self.ring.ticket else NEVER for ticket, entry in enumerate(saved)]
        out = super().handle(input, now)
        clock.T[:] = [max(entry, other) for entry, other in zip(clock.T, saved, strict=True)]
        return out


if __name__ == "__main__":
    mistake = sys.argv[1]
    ours.FEATURES[ORDER[mistake]] = ours.FEATURES["reliable"]
    if mistake == "no-merge":
        ours.Member = NoMerge  # type: ignore[misc]
    ours.Adapter(ORDER[mistake]).run()
