"""Steps that other systems recorded, as rows of a trace: numbered by each process's own counter, never by time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from whence.audit.trace.schema import Row


class NotTaken(NamedTuple):
    """A part of a file that was not imported, and why."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: line {self.line}: {self.reason}"


class Imported(NamedTuple):
    """The rows of a trace, and the parts of the files that are not in it."""

    rows: list[Row]
    refused: list[NotTaken]


class ForeignStep(NamedTuple):
    """One step of one process."""

    process: str
    number: int
    """The process's own count of its steps: 0, 1, 2, ... or 1, 2, 3, ..."""
    kind: str
    """publish, deliver, or step: anything else that the process counted."""
    events: tuple[str, ...]
    t_ns: int
    file: str
    line: int


def event_id(name: str, process: str) -> str:
    """The id of an event that a process of another system published."""
    return f"{name}@{process}#1"


def rows(steps: Iterable[ForeignStep], run: str, order: str, ended: bool = False) -> Imported:
    """The steps of each process, sorted by its counter. A missing number leaves a gap, and what depends on it is in
    doubt; of two steps with the same number the first is taken. Counters start at the smallest number found, 0 or 1: a
    process that starts there joins with an empty history and promises `order`; of any other the first steps are
    missing. `ended`: no more steps will follow."""
    mine: dict[str, dict[int, ForeignStep]] = {}
    refused: list[NotTaken] = []
    for step in steps:
        other = mine.setdefault(step.process, {}).setdefault(step.number, step)
        if other is not step:
            why = f"{step.process} counts {step.number} a second time, as in {other.file}: line {other.line}"
            refused.append(NotTaken(step.file, step.line, why))
    first = min(1, *(min(by_number) for by_number in mine.values()), 1)
    out: list[Row] = []
    for process, by_number in mine.items():
        ordered = sorted(by_number.values(), key=lambda step: step.number)
        member, lseq, due = f"{process}#1", 1, first
        if ordered[0].number == first:
            out.append(Row(run, "", member, 0, ordered[0].t_ns, "join", reason="genesis", order=order))
        for step in ordered:
            lseq += step.number - due  # numbers that are missing
            for event in step.events or (None,):
                origin = event.partition("@")[2] if event else None
                out.append(Row(run, "", member, lseq, step.t_ns, step.kind, event=event, origin=origin or None))
                lseq += 1
            due = step.number + 1
        if ended:
            out.append(Row(run, "", member, lseq, ordered[-1].t_ns, "leave"))
    return Imported(out, refused)
