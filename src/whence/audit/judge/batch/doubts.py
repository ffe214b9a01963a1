"""Whether the publish of an event may be missing in the trace: the rule of `judge.follow`, over arrays."""

from __future__ import annotations

from collections.abc import Container

from whence.audit.judge.batch.coding import Coded
from whence.audit.judge.findings import MISSING_STEPS, NO_TRACE, OPEN_END, UNKNOWN_START
from whence.audit.judge.follow import owner_of
from whence.audit.judge.tickets import parse_id

NOBODY = "a member that the id does not name"


def why(member: str, here: bool, torn: Container[str], closed: Container[str], complete: bool) -> str:
    """What is the matter with the trace of a member that leaves a doubt. `here`: there is one."""
    if not here:
        return NO_TRACE
    if member in torn:
        return MISSING_STEPS
    return UNKNOWN_START if complete or member in closed else OPEN_END


class Publishers:
    """The traces of those whose events were delivered."""

    def __init__(self, coded: Coded) -> None:
        self._coded = coded
        self._here = {name: m for m, name in enumerate(coded.members.to_pylist())}
        self._origin = {m: o for o, m in enumerate(coded.member_of.tolist())}
        self._torn, self._closed = set(coded.torn), set(coded.closed)
        self._doubts: dict[int, tuple[str, str] | None] = {}

    def doubt(self, code: int) -> tuple[str, str] | None:
        """The member in whose trace the publish of this id may be missing, and why; None: nobody has published it."""
        if code not in self._doubts:
            self._doubts[code] = self._judged(str(self._coded.events[code])) if code >= 0 else None
        return self._doubts[code]

    def _judged(self, event: str) -> tuple[str, str] | None:
        owner = owner_of(event) or NOBODY
        if owner not in self._torn:
            over = owner in self._here and (owner in self._closed or self._went_beyond(event, owner))
            if self._coded.complete or over:
                return None
        return owner, self.why(owner)

    def why(self, member: str) -> str:
        """What is the matter with the trace of a member that leaves a doubt."""
        return why(member, member in self._here, self._torn, self._closed, self._coded.complete)

    def _went_beyond(self, event: str, owner: str) -> bool:
        """The owner has published later numbers: this one is not in a part of its trace that was cut off."""
        coded, o = self._coded, self._origin.get(self._here[owner])
        if o is None:
            return False
        first, end = int(coded.base[o]), int(coded.base[o + 1])
        named = parse_id(event)
        if named is None:
            number = event.rpartition("/")[2]
            return number.isdecimal() and int(number) <= end - first
        for e in range(end - 1, first - 1, -1):
            other = parse_id(str(coded.events[int(coded.ids[e])]))
            if other is not None and other[:2] == named[:2]:
                return other.seq > named.seq
        return False
