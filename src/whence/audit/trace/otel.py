"""Imports OpenTelemetry spans: OTLP JSON, as the collector's file exporter writes it (one request a line, or one
document).

A producer span publishes an event, a consumer span delivers the events of the producer spans that it links to (or of
its parent). Wall clocks of different machines order nothing, so each of these spans has to carry the count of its
process's steps in an attribute. Other spans with that attribute are steps, too: they only take a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from whence.audit.trace.foreign import ForeignStep, Imported, NotTaken, event_id, rows
from whence.errors import TraceError

COUNTER: Final = "whence.counter"
"""The attribute with the process's count of its steps."""

_PRODUCER: Final = (4, "SPAN_KIND_PRODUCER")
_CONSUMER: Final = (5, "SPAN_KIND_CONSUMER")


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
    def at(self) -> tuple[str, str]:
        """By what others name it."""
        return self.trace_id, self.span_id


class _Scope(msgspec.Struct):
    spans: list[_Span] = []


class _Resource(msgspec.Struct):
    attributes: list[_Attribute] = []


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource = msgspec.field(default_factory=_Resource)
    scope_spans: list[_Scope] = []


class _Request(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 60)]
_decode = msgspec.json.Decoder(_Request).decode
_NO_REQUEST: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def read_spans(paths: Iterable[Path], *, order: str = "causal") -> Imported:
    """The spans in these files as one run."""
    refused: list[NotTaken] = []
    spans = [span for path in paths for span in _spans(path, refused)]
    sent = {s.at: event_id(":".join(s.at), s.process) for s in spans if s.kind in _PRODUCER}
    known = {span.at for span in spans}
    steps: list[ForeignStep] = []
    for span in spans:
        try:
            steps += _steps(span, sent, known)
        except ValueError as why:
            refused.append(NotTaken(span.file, span.line, f"span {span.span_id}: {why}"))
    made = rows(steps, "otel", order)
    return Imported(made.rows, refused + made.refused)


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


def _placed(request: _Request, path: Path, line: int) -> Iterator[_Span]:
    for resource in request.resource_spans:
        named = {a.key: str(next(iter(a.value.values()), "")) for a in resource.resource.attributes}
        parts = [named[key] for key in ("service.name", "service.instance.id") if named.get(key)]
        process = ":".join(parts)
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.process, span.file, span.line = process, str(path), line
                yield span


def _steps(span: _Span, sent: dict[tuple[str, str], str], known: set[tuple[str, str]]) -> Iterator[ForeignStep]:
    """The step of this span; none for a span without a counter that neither sends nor receives. ValueError: the step
    cannot be used."""
    sends, takes = span.kind in _PRODUCER, span.kind in _CONSUMER
    number = _number(span.attributes)
    if number is None and not sends and not takes:
        return
    if number is None:
        raise ValueError(
            f"no attribute {COUNTER!r}: it has to count the steps of its process (0, 1, 2, ...), as times of "
            "different machines order nothing"
        )
    if not span.process:
        raise ValueError("its resource has neither service.instance.id nor service.name: nobody knows whose step it is")
    events: tuple[str, ...] = ()
    if sends:
        events = (sent[span.at],)
    elif takes:
        linked = [(link.trace_id, link.span_id) for link in span.links] or [(span.trace_id, span.parent_span_id)]
        wanted = [at for at in dict.fromkeys(linked) if at[1] and (at in sent or at not in known)]
        if not wanted:
            raise ValueError("a consumer span without a link to a producer span")
        events = tuple(sent.get(at, f"{at[0]}:{at[1]}") for at in wanted)
    kind = "publish" if sends else "deliver" if takes else "step"
    t_ns = _nanoseconds(span.start_time_unix_nano)
    yield ForeignStep(span.process, number, kind, events, t_ns, span.file, span.line)


def _number(attributes: Sequence[_Attribute]) -> int | None:
    """The value of the counter, if it is there."""
    value = next((attribute.value for attribute in attributes if attribute.key == COUNTER), None)
    if value is None:
        return None
    try:
        return msgspec.convert(value.get("intValue"), _Count, strict=False)
    except msgspec.ValidationError:
        raise ValueError(f"the attribute {COUNTER!r} is {str(value)[:60]}, not an intValue of 0 or more") from None


def _nanoseconds(value: int | str) -> int:
    """Times are only displayed, so an invalid one becomes 0."""
    number = int(value) if isinstance(value, int) or (value.isdecimal() and len(value) < 20) else 0
    return number if 0 <= number < 1 << 63 else 0
