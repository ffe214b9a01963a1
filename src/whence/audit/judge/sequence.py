"""The one sequence of members in total order: do any two agree?

Each of them delivers a part of the sequence without a hole, wherever it begins. So it is enough to look at neighbours:
the sequences of all of them agree if every event has the same one after it, and the same one before it, at everybody
who delivered both. That needs no place where members began, and can be told from any part of a trace.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple


class Split(NamedTuple):
    """The first place at which a member differs from another one."""

    beside: Any
    """The event that both delivered, ..."""
    other: Any
    """... the one that the other one delivered next to it, ..."""
    who: Any
    """... and who that was."""
    after: bool
    """Next to it is after it; else before it."""


class OneSequence:
    """What follows what, as far as members have shown. A line is a member, in one life."""

    def __init__(self) -> None:
        self._last: dict[Hashable, Hashable] = {}  # line -> what it delivered last
        self._next: dict[Hashable, tuple[Hashable, Hashable]] = {}  # event -> the one after it, and who says so
        self._before: dict[Hashable, tuple[Hashable, Hashable]] = {}
        self._split: set[Hashable] = set()  # lines that differ: all that they deliver later does, too

    def delivered(self, line: Hashable, event: Hashable) -> Split | None:
        """The line delivers an event. A Split: here it differs from another line, for the first time."""
        last = self._last.get(line)
        if line in self._split or last == event:
            return None
        self._last[line] = event
        if last is None:
            return None
        after, said = self._next.setdefault(last, (event, line))
        before, told = self._before.setdefault(event, (last, line))
        if after == event and before == last:
            return None
        self._split.add(line)
        return Split(last, after, said, True) if after != event else Split(event, before, told, False)
