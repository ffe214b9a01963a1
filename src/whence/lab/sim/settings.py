"""Strict reading and writing of TOML settings with durations and sizes, and errors that name the key.

A settings struct is a `msgspec.Struct` whose annotations describe its values. `Duration` fields are written "250ms",
"12s", "2min" or "8r" (rounds), `Size` fields "64KiB"; both are read as integers (ns, bytes).
"""

from __future__ import annotations

import re
import types
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from whence.errors import ConfigError

Duration = Annotated[int, msgspec.Meta(ge=0, title="duration")]
"""Nanoseconds."""
Size = Annotated[int, msgspec.Meta(ge=0, title="size")]
"""Bytes."""
Share = Annotated[float, msgspec.Meta(ge=0, le=1, title="share")]
"""A probability."""
Count = Annotated[int, msgspec.Meta(ge=0, title="count")]

S = TypeVar("S", bound=msgspec.Struct)

_NS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*")


def parse_duration(text: object, where: str, round_ns: int | None = None) -> int:
    """`"200ms"` -> ns. A number without a unit is refused."""
    units = dict(_NS) if round_ns is None else {**_NS, "r": round_ns}
    return _quantity(text, where, units, "a duration", '"200ms", "3s" or "8r" (rounds)')


def parse_size(text: object, where: str) -> int:
    """`"64KiB"` -> bytes."""
    return _quantity(text, where, _BYTES, "a size", '"64KiB" or "1500B"')


def _quantity(text: object, where: str, units: Mapping[str, int], what: str, like: str) -> int:
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise ConfigError(f"{where}: {text!r} is not {what}; write it like {like}")
    number, unit = match[1], units[match[2]]
    if "." not in number:
        return int(number) * unit
    whole, _, part = number.partition(".")  # exact, without floats
    return int(whole) * unit + int(part) * unit // int("1" + "0" * len(part))


def show_duration(ns: int) -> str:
    """The shortest exact form: 1500000000 -> "1500ms"."""
    for unit in ("s", "ms", "us", "ns"):
        if ns % _NS[unit] == 0:
            return f"{ns // _NS[unit]}{unit}"
    raise AssertionError("every integer is a number of ns")


def _title(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return next((m.title or "" for m in get_args(hint)[1:] if isinstance(m, msgspec.Meta)), "")
    return ""


def _options(hint: Any) -> tuple[Any, ...]:
    """The alternatives of a union; a single hint is its only one."""
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _struct_of(hint: Any) -> type[msgspec.Struct] | None:
    for option in _options(hint):
        if isinstance(option, type) and issubclass(option, msgspec.Struct):
            return option
    return None


def _plain(value: object, hint: Any, where: str, round_ns: int) -> object:
    """The value with durations and sizes as integers; checks the keys of every table."""
    options = _options(hint)
    titles = {_title(o) for o in options}
    if isinstance(value, dict):
        struct = _struct_of(hint)
        if struct is not None:
            return _table(struct, value, where, round_ns)
        return value
    if isinstance(value, list):
        item = next((get_args(o)[0] for o in options if get_origin(o) in (list, tuple)), Any)
        return [_plain(v, item, f"{where}[{i}]", round_ns) for i, v in enumerate(value)]
    if "duration" in titles:
        return parse_duration(value, where, round_ns)
    if "size" in titles:
        return parse_size(value, where)
    if isinstance(value, int) and not isinstance(value, bool) and (float in options or "share" in titles):
        return float(value)
    return value


def _table(struct: type[msgspec.Struct], table: Mapping[str, object], where: str, round_ns: int) -> dict[str, object]:
    hints = get_type_hints(struct, include_extras=True)
    names = dict(zip(struct.__struct_encode_fields__, struct.__struct_fields__, strict=True))
    prefix = f"{where}." if where else ""
    for key in table:
        if key not in names:
            raise ConfigError(f"unknown key {prefix + key!r}; allowed here: {', '.join(sorted(names))}")
    return {key: _plain(v, hints[names[key]], prefix + key, round_ns) for key, v in table.items()}


def read(struct: type[S], table: Mapping[str, object], where: str = "", round_ns: int = 0) -> S:
    """Convert a table to a struct; raises a ConfigError that names the key."""
    plain = _table(struct, table, where, round_ns)
    try:
        return msgspec.convert(plain, struct, strict=True)
    except msgspec.ValidationError as error:
        text = str(error).replace("$.", f"{where}." if where else "")
        raise ConfigError(text[0].lower() + text[1:]) from None


def write(value: msgspec.Struct) -> dict[str, object]:
    """The inverse of `read`, without defaults."""
    hints = get_type_hints(type(value), include_extras=True)
    fields = msgspec.structs.fields(type(value))
    table: dict[str, object] = {}
    for field in fields:
        item = getattr(value, field.name)
        default = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        if item is None or (item == default and not field.required):
            continue
        table[field.encode_name] = _shown(item, hints[field.name])
    return table


def _shown(item: object, hint: Any) -> object:
    titles = {_title(o) for o in _options(hint)}
    if isinstance(item, msgspec.Struct):
        return write(item)
    if isinstance(item, (list, tuple)):
        inner = next((get_args(o)[0] for o in _options(hint) if get_origin(o) in (list, tuple)), Any)
        return [_shown(i, inner) for i in item]
    if isinstance(item, int) and "duration" in titles:
        return show_duration(item)
    if isinstance(item, int) and "size" in titles:
        return f"{item}B"
    return item


def to_toml(table: Mapping[str, object], path: str = "") -> str:
    """A table as TOML text: plain keys first, then tables, then arrays of tables."""
    lines: list[str] = []
    later: list[str] = []
    for key, value in table.items():
        name = f"{path}{key}"
        if isinstance(value, dict):
            later.append(f"\n[{name}]\n{to_toml(value, name + '.')}")
        elif isinstance(value, list) and value and all(isinstance(v, dict) for v in value):
            later.extend(f"\n[[{name}]]\n{to_toml(v, name + '.')}" for v in value)
        else:
            lines.append(f"{key} = {_toml_value(value)}\n")
    return "".join(lines) + "".join(later)


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()  # a JSON string is a TOML basic string
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items()) + "}"
    return repr(value)
