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


class _Place(msgspec.Struct, frozen=True):
    """A span, its process, and where it stands."""

    span: _Span
    process: str
    file: str
    line: int


def read_spans(paths: Iterable[Path], *, order: str = "causal") -> Imported:
    """The spans in these files as one run."""
    refused: list[NotTaken] = []
    spans = [place for path in paths for place in _spans(path, refused)]
    published = {
        (p.span.trace_id, p.span.span_id): event_id(f"{p.span.trace_id}:{p.span.span_id}", p.process)
        for p in spans
        if p.span.kind in _PRODUCER
    }
    known = {(p.span.trace_id, p.span.span_id) for p in spans}
    steps: list[ForeignStep] = []
    for place in spans:
        try:
            steps += _steps(place, published, known)
        except ValueError as why:
            refused.append(NotTaken(place.file, place.line, f"span {place.span.span_id}: {why}"))
    made = rows(steps, "otel", order)
    return Imported(made.rows, refused + made.refused)


def _spans(path: Path, refused: list[NotTaken]) -> Iterator[_Place]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot read: {error.strerror or error}") from error
    with suppress(*_NO_REQUEST):
        yield from _places(_decode(text), path, 1)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            request = _decode(line)
        except _NO_REQUEST as error:
            refused.append(NotTaken(str(path), number, f"no OTLP request: {error}"))
        else:
            yield from _places(request, path, number)


def _places(request: _Request, path: Path, line: int) -> Iterator[_Place]:
    for resource in request.resource_spans:
        named = {a.key: str(next(iter(a.value.values()), "")) for a in resource.resource.attributes}
        parts = [named[key] for key in ("service.name", "service.instance.id") if named.get(key)]
        process = ":".join(parts)
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield _Place(span, process, str(path), line)


def _steps(place: _Place, published: dict[tuple[str, str], str], known: set[tuple[str, str]]) -> Iterator[ForeignStep]:
    """The step of this span; none for a span without a counter that neither sends nor receives. ValueError: the step
    cannot be used."""
    span = place.span
    sends, takes = span.kind in _PRODUCER, span.kind in _CONSUMER
    number = _number(span.attributes)
    if number is None and not sends and not takes:
        return
    if number is None:
        raise ValueError(
            f"no attribute {COUNTER!r}: it has to count the steps of its process (0, 1, 2, ...), as times of "
            "different machines order nothing"
        )
    if not place.process:
        raise ValueError("its resource has neither service.instance.id nor service.name: nobody knows whose step it is")
    events: tuple[str, ...] = ()
    if sends:
        events = (published[span.trace_id, span.span_id],)
    elif takes:
        linked = [(link.trace_id, link.span_id) for link in span.links] or [(span.trace_id, span.parent_span_id)]
        wanted = [at for at in dict.fromkeys(linked) if at[1] and (at in published or at not in known)]
        if not wanted:
            raise ValueError("a consumer span without a link to a producer span")
        events = tuple(published.get(at, f"{at[0]}:{at[1]}") for at in wanted)
    kind = "publish" if sends else "deliver" if takes else "step"
    t_ns = _nanoseconds(span.start_time_unix_nano)
    yield ForeignStep(place.process, number, kind, events, t_ns, place.file, place.line)


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
