"""Imports OpenTelemetry spans: OTLP JSON, as the collector's file exporter writes it (one request a line, or one
document).

A producer span publishes an event, a consumer span delivers the events of the producer spans that it links to (or of
its parent). Wall clocks of different machines order nothing, so each of these spans has to carry the count of its
process's steps in an attribute. Other spans with that attribute are steps, too: they only take a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from whence.audit.trace.schema import Row
from whence.errors import TraceError

COUNTER: Final = "whence.counter"
"""The attribute with the process's count of its steps."""

_PRODUCER: Final = (4, "SPAN_KIND_PRODUCER")
_CONSUMER: Final = (5, "SPAN_KIND_CONSUMER")


_Name = tuple[str, str]
"""Trace and span: by what others name a span."""


class _Attribute(msgspec.Struct):
    key: str
    value: dict[str, Any] = {}


class _Link(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str


class _Span(msgspec.Struct, rename="camel"):
    trace_id: str
    span_id: str
    kind: int | str = 0
    parent_span_id: str = ""
    start_time_unix_nano: int | str = 0
    attributes: list[_Attribute] = []
    links: list[_Link] = []
    process: str = ""
    """Whose span it is, and where it stands: this is not in the file."""
    line: int = 0
    file: str = ""

    @property
    def at(self) -> _Name:
        return self.trace_id, self.span_id


class _Scope(msgspec.Struct):
    spans: list[_Span] = []


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_Scope] = []


class _ExportRequest(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


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


class _SpanStep(NamedTuple):
    """What a process did in a span."""

    number: int
    """The process's own count of its steps: 0, 1, 2, ... or 1, 2, 3, ..."""
    kind: str
    """publish, deliver, or step: anything else that the process counted."""
    events: tuple[str, ...]
    span: _Span


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 60)]
_decode = msgspec.json.Decoder(_ExportRequest).decode
_NO_REQUEST: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_spans(paths: Iterable[Path], *, order: str = "causal") -> Imported:
    """The spans in these files as one run. Of two steps of a process with the same number the first is taken."""
    refused: list[NotTaken] = []
    spans = [span for path in paths for span in _spans(path, refused)]
    sent = {s.at: f"{s.trace_id}:{s.span_id}@{s.process}#1" for s in spans if s.kind in _PRODUCER}
    known = {span.at for span in spans}
    steps: dict[str, dict[int, _SpanStep]] = {}
    for span in spans:
        try:
            step = _step(span, sent, known)
            if step is None:
                continue
            first = steps.setdefault(span.process, {}).setdefault(step.number, step).span
            if first is not span:
                again = f"a second time, as in {first.file}: line {first.line}"
                raise ValueError(f"{span.process} counts {step.number} {again}")
        except ValueError as why:
            refused.append(NotTaken(span.file, span.line, f"span {span.span_id}: {why}"))
    return Imported(_rows(steps, order), refused)


def _rows(steps: Mapping[str, Mapping[int, _SpanStep]], order: str) -> list[Row]:
    """The steps of each process by its own counter. A missing number leaves a gap, and what depends on it is in doubt.
    Counters start at the smallest number found, 0 or 1: a process that starts there joins with an empty history and
    promises `order`; of any other the first steps are missing."""
    first = min(1, *(min(mine) for mine in steps.values()), 1)
    out: list[Row] = []
    for process, mine in steps.items():
        member, lseq, due = f"{process}#1", 1, first
        if first in mine:
            t_ns = _nanoseconds(mine[first].span.start_time_unix_nano)
            out.append(Row("otel", "", member, 0, t_ns, "join", reason="genesis", order=order))
        for number, kind, events, span in sorted(mine.values(), key=lambda step: step.number):
            t_ns = _nanoseconds(span.start_time_unix_nano)
            lseq += number - due  # numbers that are missing
            for event in events or (None,):
                origin = event.partition("@")[2] if event else None
                out.append(Row("otel", "", member, lseq, t_ns, kind, event=event, origin=origin or None))
                lseq += 1
            due = number + 1
    return out


def _spans(path: Path, refused: list[NotTaken]) -> Iterator[_Span]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror or error}") from error
    with suppress(*_NO_REQUEST):
        yield from _placed(_decode(text), path, 1)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            request = _decode(line)
        except _NO_REQUEST as error:
            refused.append(NotTaken(str(path), number, f"no OTLP request: {error}"))
        else:
            yield from _placed(request, path, number)


def _placed(request: _ExportRequest, path: Path, line: int) -> Iterator[_Span]:
    for resource in request.resource_spans:
        named = {a.key: str(next(iter(a.value.values()), "")) for a in resource.resource.attributes}
        parts = [named[key] for key in ("service.name", "service.instance.id") if named.get(key)]
        process = ":".join(parts)
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.process, span.file, span.line = process, str(path), line
                yield span


def _step(span: _Span, sent: Mapping[_Name, str], known: set[_Name]) -> _SpanStep | None:
    """The step of this span; none of a span without a counter that neither sends nor receives. ValueError: the step
    cannot be used."""
    sends, takes = span.kind in _PRODUCER, span.kind in _CONSUMER
    counter = next((attribute.value for attribute in span.attributes if attribute.key == COUNTER), None)
    if counter is None and not sends and not takes:
        return None
    if counter is None:
        raise ValueError(
            f"no attribute {COUNTER!r}: it has to count the steps of its process (0, 1, 2, ...), as times of "
            "different machines order nothing"
        )
    try:
        number = msgspec.convert(counter.get("intValue"), _Count, strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"the attribute {COUNTER!r} is {str(counter)[:60]}, not an intValue of 0 or more") from None
    if not span.process:
        raise ValueError("its resource has neither service.instance.id nor service.name: nobody knows whose step it is")
    if sends:
        return _SpanStep(number, "publish", (sent[span.at],), span)
    if not takes:
        return _SpanStep(number, "step", (), span)
    linked = [(link.trace_id, link.span_id) for link in span.links] or [(span.trace_id, span.parent_span_id)]
    wanted = [at for at in dict.fromkeys(linked) if at[1] and (at in sent or at not in known)]
    if not wanted:
        raise ValueError("a consumer span without a link to a producer span")
    return _SpanStep(number, "deliver", tuple(sent.get(at, ":".join(at)) for at in wanted), span)


def _nanoseconds(value: int | str) -> int:
    """Times are only displayed, so an invalid one becomes 0."""
    number = int(value) if isinstance(value, int) or (value.isdecimal() and len(value) < 20) else 0
    return number if 0 <= number < 1 << 63 else 0
