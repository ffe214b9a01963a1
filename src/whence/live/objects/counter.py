"""A replicated counter. Its value is the sum of all additions."""

from __future__ import annotations

import re
from typing import ClassVar

from whence.live.objects.kernel import Stamp
from whence.live.objects.operations import Add, BadOperation, Operation, encode

_NUMBER = re.compile(rb"-?[0-9]{1,60}")


class Counter:
    """Additions commute, and a member delivers no event twice, so the sum is exact. Lost events (`over_gap`) are
    missing."""

    kind: ClassVar[str] = "counter"

    def __init__(self, name: str) -> None:
        self.name = name
        self.value = 0

    def add(self, amount: int = 1) -> bytes:
        """The operation that adds `amount`, which may be negative."""
        return encode(Add(self.name, amount))

    # -- Replica ------------------------------------------------------------------------------------------------

    def apply(self, stamp: Stamp, operation: Operation) -> bool:
        if not isinstance(operation, Add):
            raise BadOperation(f"{type(operation).__name__} on a counter")
        self.value += operation.amount
        return operation.amount != 0

    def state(self) -> bytes:
        return b"%d" % self.value

    def restore(self, state: bytes) -> None:
        if not _NUMBER.fullmatch(state):
            raise BadOperation(f"not a state of a counter: {state[:80]!r}")
        self.value = int(state)

    @property
    def size(self) -> int:
        return 64
