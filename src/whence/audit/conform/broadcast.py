"""Imports histories of broadcast workloads, as Maelstrom and Jepsen write them (`history.edn`), as a trace.

A client process is a member. Its `broadcast` publishes the value; a `read` delivers what it has not read before. A read
is a set: what is new in one read is taken in the order in which it was broadcast, so nobody is blamed for an order that
was not observed. A `broadcast` without an answer (`info`) may have happened, a failed one did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from whence.audit.trace.foreign import ForeignStep, Imported, NotTaken, event_id, rows
from whence.errors import HistoryError, TraceError

BROADCASTS: Final = ("broadcast", "add")
"""What sends a value: `add` in Jepsen's workload of sets."""


def read_histories(paths: Iterable[Path], *, order: str = "causal") -> Imported:
    """Each file is a run of its own."""
    out = Imported([], [])
    for path in paths:
        made = _History(path).imported(order)
        out.rows.extend(made.rows)
        out.refused.extend(made.refused)
    return out


class _History:
    """One history on its way to rows."""

    def __init__(self, path: Path) -> None:
        self._file = str(path)
        self._path = path
        self._refused: list[NotTaken] = []
        self._steps: list[ForeignStep] = []
        self._count: Counter[int] = Counter()
        self._sent: dict[Any, tuple[int, str]] = {}
        """Value -> its place among the broadcasts, and its event."""
        self._seen: dict[int, dict[Any, int]] = {}
        """Process -> value -> the line in which it was read first."""

    def imported(self, order: str) -> Imported:
        ops = list(self._operations())
        open_: dict[int, int] = {}
        failed: set[int] = set()  # the lines of invocations that failed
        for line, op in ops:
            if op.get("type") == "invoke":
                open_[op["process"]] = line
            elif (begun := open_.pop(op["process"], None)) and op.get("type") == "fail":
                failed.add(begun)
        for line, op in ops:
            kind, what = op.get("type"), op.get("f")
            if what in BROADCASTS and kind == "invoke" and line not in failed:
                self._broadcast(line, op)
            elif what == "read" and kind == "ok":
                self._read(line, op)
        made = rows(self._steps, self._file, order, ended=True)
        if not made.rows:
            raise TraceError(f"{self._file}: no broadcast and no read in this history")
        return Imported(made.rows, self._refused + made.refused)

    def _operations(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Those of clients."""
        from whence.audit.history import edn
        from whence.audit.history.formats import content
        from whence.audit.history.tables import decoded

        try:
            for line, form in edn.parse(self._file, decoded(self._path, content(self._path))):
                for op in form if isinstance(form, list) else [form]:
                    if not isinstance(op, dict):
                        self._refuse(line, f"an operation is a map, not {str(op)[:60]!r}")
                    elif isinstance(op.get("process"), int) and not isinstance(op["process"], bool):
                        yield line, op
        except HistoryError as error:
            raise TraceError(str(error)) from error
        except RecursionError:
            raise TraceError(f"{self._file}: nested too deeply") from None

    def _broadcast(self, line: int, op: dict[str, Any]) -> None:
        value, process = op.get("value"), op["process"]
        if isinstance(value, list | dict) or value is None:
            self._refuse(line, f"a broadcast of {str(value)[:60]!r}: a value has to be a number or a text")
        elif value in self._sent:
            self._refuse(line, f"{value!r} is broadcast a second time: reads cannot tell which one they have")
        else:
            event = event_id(str(value), f"p{process}")
            self._sent[value] = (len(self._sent), event)
            self._step(process, "publish", event, op, line)

    def _read(self, line: int, op: dict[str, Any]) -> None:
        value, process = op.get("value"), op["process"]
        if not isinstance(value, list) or any(isinstance(one, list | dict) for one in value):
            self._refuse(line, f"a read gives a list of values, not {str(value)[:60]!r}")
            return
        seen, counts = self._seen.setdefault(process, {}), Counter(value)
        gone = [one for one in seen if one not in counts]
        for one in gone:
            self._refuse(line, f"process {process} no longer reads {one!r}, which it read in line {seen.pop(one)}")
        new = [one for one in counts if one not in seen]
        for one in sorted(new, key=lambda one: self._sent.get(one, (len(self._sent), ""))[0]):
            seen[one] = line
            for _ in range(min(counts[one], 2)):
                self._step(process, "deliver", self._sent.get(one, (0, str(one)))[1], op, line)

    def _step(self, process: int, kind: str, event: str, op: dict[str, Any], line: int) -> None:
        time = op.get("time")
        t_ns = time if isinstance(time, int) and 0 <= time < 1 << 63 else 0
        self._steps.append(ForeignStep(f"p{process}", self._count[process], kind, (event,), t_ns, self._file, line))
        self._count[process] += 1

    def _refuse(self, line: int, reason: str) -> None:
        self._refused.append(NotTaken(self._file, line, reason))
