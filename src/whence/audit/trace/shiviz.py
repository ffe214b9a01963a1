"""Imports logs of the ShiViz viewer.

A ShiViz log is text. A parser expression (a JavaScript regular expression with the named groups `host`, `clock` and
`event`) finds its records; each has a vector clock as a JSON object. A file for the viewer's upload begins with the
expression, then a line with the expression that separates executions (empty if there is one), then the log.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from whence.errors import TraceError, UsageError

EXPRESSION = r"(?<host>\S*) (?<clock>{.*})\n(?<event>.*)"
"""Host and clock on one line, the event on the next."""

_NEEDED = ("host", "clock", "event")
EXPRESSION_S = 60.0
"""Seconds that the expression in a log's own first line may take for the whole log."""

_JAVASCRIPT = re.compile(r"\\k<(?P<back>\w+)>|\\.|(?P<group>\(\?<(?![=!]))|(?P<any>\[\^\])", re.DOTALL)
_decode_clock = msgspec.json.Decoder(dict[str, int]).decode


class Record(msgspec.Struct, frozen=True):
    """One record of a log."""

    host: str
    clock: dict[str, int]
    event: str
    line: int
    """Where the record begins, from 1."""
    execution: str = ""
    """The label of the execution it belongs to."""

    @property
    def own(self) -> int:
        """The host's own entry: its count of steps."""
        return self.clock[self.host]


class Log(msgspec.Struct, frozen=True):
    """A parsed log."""

    records: list[Record] = []
    passed_over: list[tuple[int, str]] = []
    """Line and text of what belongs to no record; the viewer ignores it too."""
    refused: list[tuple[int, str, str]] = []
    """Records without a usable clock: line, reason, and the line's text."""


def compile_expression(expression: str, needed: tuple[str, ...] = _NEEDED, what: str = "parser") -> re.Pattern[str]:
    """Translate a JavaScript regular expression: named groups, `^` and `$` at every line, ASCII `\\d` and `\\w`."""

    def translate(found: re.Match[str]) -> str:
        if found["back"]:
            return f"(?P={found['back']})"
        if found["group"]:
            return "(?P<"
        return r"[\s\S]" if found["any"] else found[0]

    try:
        pattern = re.compile(_JAVASCRIPT.sub(translate, expression), re.MULTILINE | re.ASCII)
    except re.error as error:
        raise UsageError(f"cannot use the {what} expression {expression!r}: {error}") from error
    missing = [name for name in needed if name not in pattern.groupindex]
    if missing:
        raise UsageError(f"the parser expression {expression!r} lacks the named groups: {', '.join(missing)}")
    return pattern


def parse_log(
    text: str, expression: str = EXPRESSION, delimiter: str = "", file: str = "<log>", first_line: int = 1
) -> Log:
    """Parse a log. A record whose clock is not a JSON object of counts, or has no entry for its own host, goes to
    `refused`."""
    pattern = compile_expression(expression)
    log = Log()
    line, counted = first_line, 0

    def line_at(position: int) -> int:
        nonlocal line, counted
        line, counted = line + text.count("\n", counted, position), position
        return line

    def pass_over(begin: int, end: int) -> None:
        rest = text[begin:end]
        if rest.strip():
            log.passed_over.append((line_at(end - len(rest.lstrip())), rest.strip()))

    for label, start, end in _executions(text, delimiter):
        done = start
        for match in pattern.finditer(text, start, end):
            pass_over(done, match.start())
            done = match.end()
            try:
                log.records.append(_record(match, line_at(match.start()), label))
            except ValueError as reason:
                begin, end_of_line = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.start())
                raw = text[begin : end_of_line if end_of_line >= 0 else len(text)]
                log.refused.append((line, str(reason), raw))
        pass_over(done, end)
    if not log.records and not log.refused:
        raise TraceError(f"{file}: the parser expression {expression!r} finds no record")
    return log


def _executions(text: str, delimiter: str) -> Iterator[tuple[str, int, int]]:
    """Label, begin and end of each execution that is not empty."""
    label, start = "", 0
    if delimiter.strip():
        pattern = compile_expression(delimiter, needed=(), what="delimiter")
        for number, match in enumerate(pattern.finditer(text), 1):
            if text[start : match.start()].strip():
                yield label, start, match.start()
            label = match["trace"] if "trace" in pattern.groupindex else str(number)
            start = match.end()
    if text[start:].strip() or start == 0:
        yield label, start, len(text)


def _record(match: re.Match[str], line: int, label: str) -> Record:
    """The record of a match; ValueError for a bad clock."""
    host, text = match["host"] or "", match["clock"] or ""
    try:
        clock = _decode_clock(text.replace('\\"', '"') if text.startswith('{\\"') else text)
    except msgspec.DecodeError as error:
        raise ValueError(f"the clock {text[:80]!r} is not a JSON object of counts: {error}") from error
    if host not in clock:
        raise ValueError(f"the clock {text[:80]!r} has no entry for its own host {host!r}")
    return Record(host, clock, match["event"] or "", line, label)


def load_log(path: str | os.PathLike[str], expression: str | None = None, delimiter: str | None = None) -> Log:
    """Parse a log file. Without an expression, the file must begin with one, as for the viewer's upload; its second
    line is the delimiter then, unless one is given."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: byte {error.start}: not UTF-8 text") from error
    if not text.strip():
        raise TraceError(f"{path}: empty file: no record")
    if expression is not None:
        return parse_log(text, expression, delimiter or "", str(path))
    first, _, rest = text.partition("\n")
    second, _, log = rest.partition("\n")
    if "(?<clock>" not in first:
        raise TraceError(f"{path}: line 1: no parser expression; pass one")
    with _time_limit(path):
        return parse_log(log, first, second if delimiter is None else delimiter, str(path), first_line=3)


@contextmanager
def _time_limit(path: str | os.PathLike[str]) -> Iterator[None]:
    """A regular expression out of a file can take exponential time. The alarm reaches it in the main thread only, where
    commands and Spark's workers run; elsewhere there is no limit."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def over(number: int, frame: object) -> None:
        raise TraceError(f"{path}: its parser expression takes longer than {EXPRESSION_S} s: pass a simpler one")

    former = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, EXPRESSION_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
