"""As much of EDN as Jepsen writes: keywords, symbols, numbers, strings, vectors, lists, sets, maps, comments, tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from whence.errors import HistoryError

TOKEN = re.compile(r'[\s,]+|;[^\n]*|(#_|#\{|[\[\](){}])|("(?:[^"\\]|\\.)*")|(#?[^\s,;"\[\](){}]+)', re.DOTALL)
CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}


class Keyword(str):
    """`:txn`, without the colon."""

    __slots__ = ()


def parse(path: Path | str, text: str) -> Iterator[tuple[int, Any]]:
    """The top-level forms, each with the line that it begins on. Maps become dicts, vectors and lists become lists."""
    tokens = _tokens(path, text)
    for line, token in tokens:
        form = _form(path, line, token, tokens)
        if form is not _NOTHING:
            yield line, form


_NOTHING = object()


def _tokens(path: Path | str, text: str) -> Iterator[tuple[int, str]]:
    at = 0
    line = 1
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise HistoryError(f"{path}, line {line}: not EDN: {text[at : at + 40]!r}")
        token = found[1] or found[2] or found[3]
        if token:
            yield line, token
        line += text.count("\n", at, found.end())
        at = found.end()


def _form(path: Path | str, line: int, token: str, tokens: Iterator[tuple[int, str]]) -> Any:
    if token == "#_":  # the next form is a comment
        _form(path, *_next(path, line, token, tokens), tokens)
        return _NOTHING
    if token in CLOSING:
        inside: list[Any] = []
        while True:
            at, word = _next(path, line, token, tokens)
            if word in ("]", ")", "}"):
                if word != CLOSING[token]:
                    raise HistoryError(f"{path}, line {at}: {token!r} of line {line} is closed by {word!r}")
                break
            form = _form(path, at, word, tokens)
            if form is not _NOTHING:
                inside.append(form)
        if token != "{":
            return inside
        if len(inside) % 2:
            raise HistoryError(f"{path}, line {line}: a map with a key and no value")
        try:
            return dict(zip(inside[::2], inside[1::2], strict=True))
        except TypeError:
            raise HistoryError(f"{path}, line {line}: a map with a collection as its key") from None
    if token in ("]", ")", "}"):
        raise HistoryError(f"{path}, line {line}: {token!r} closes nothing")
    if token.startswith("#"):  # a tag, such as #jepsen.history.Op: what it tags is what counts
        return _form(path, *_next(path, line, token, tokens), tokens)
    return _atom(path, line, token)


def _next(path: Path | str, line: int, token: str, tokens: Iterator[tuple[int, str]]) -> tuple[int, str]:
    found = next(tokens, None)
    if found is None:
        raise HistoryError(f"{path}, line {line}: the file ends inside what {token!r} begins")
    return found


def _atom(path: Path | str, line: int, token: str) -> Any:
    if token[0] == ":":
        return Keyword(token[1:])
    if token[0] == '"':
        try:
            return json.loads(token, strict=False)
        except ValueError:
            raise HistoryError(f"{path}, line {line}: not a string: {token[:40]}") from None
    constants = {"nil": None, "true": True, "false": False}
    if token in constants:
        return constants[token]
    for number in (int, float):
        try:
            return number(token.rstrip("NM"))
        except ValueError:
            continue
    return Keyword(token)  # a symbol
