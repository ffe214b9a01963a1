"""As much of EDN as Jepsen writes: keywords, symbols, numbers, strings, vectors, lists, sets, maps, comments, tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from whence.errors import HistoryError

TOKEN = re.compile(r'[\s,]+|;[^\n]*|(#_|#\{|[\[\](){}])|("(?:[^"\\]|\\.)*")|(#?[^\s,;"\[\](){}]+)', re.DOTALL)
CLOSING = {"[": "]", "(": ")", "{": "}", "#{": "}"}


def parse(path: Path | str, text: str) -> Iterator[tuple[int, Any]]:
    """The top-level forms, each with the line that it begins on. Maps become dicts, vectors and lists become lists,
    keywords (without the colon) and symbols become strings."""
    reader = _Reader(path, text)
    for line, token in reader.tokens:
        form = reader.form(line, token)
        if form is not _NOTHING:
            yield line, form


_NOTHING = object()
CONSTANTS = {"nil": None, "true": True, "false": False}


class _Reader:
    def __init__(self, path: Path | str, text: str) -> None:
        self.path = path
        self.tokens = self._tokens(text)

    def _tokens(self, text: str) -> Iterator[tuple[int, str]]:
        at, line = 0, 1
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None:
                raise self._error(line, f"not EDN: {text[at : at + 40]!r}")
            if token := found[1] or found[2] or found[3]:
                yield line, token
            line += text.count("\n", at, found.end())
            at = found.end()

    def _error(self, line: int, why: str) -> HistoryError:
        return HistoryError(f"{self.path}, line {line}: {why}")

    def _next(self, line: int, token: str) -> tuple[int, str]:
        found = next(self.tokens, None)
        if found is None:
            raise self._error(line, f"the file ends inside what {token!r} begins")
        return found

    def form(self, line: int, token: str) -> Any:
        """What a token begins."""
        if token in CLOSING:
            return self._collection(line, token)
        if token in CLOSING.values():
            raise self._error(line, f"{token!r} closes nothing")
        if token[0] == "#":  # a comment (#_), or a tag such as #jepsen.history.Op: what it tags is what counts
            form = self.form(*self._next(line, token))
            return _NOTHING if token == "#_" else form
        return self._atom(line, token)

    def _collection(self, line: int, token: str) -> Any:
        inside: list[Any] = []
        while (found := self._next(line, token))[1] not in CLOSING.values():
            if (form := self.form(*found)) is not _NOTHING:
                inside.append(form)
        if found[1] != CLOSING[token]:
            raise self._error(found[0], f"{token!r} of line {line} is closed by {found[1]!r}")
        if token != "{":
            return inside
        if len(inside) % 2:
            raise self._error(line, "a map with a key and no value")
        try:
            return dict(zip(inside[::2], inside[1::2], strict=True))
        except TypeError:
            raise self._error(line, "a map with a collection as its key") from None

    def _atom(self, line: int, token: str) -> Any:
        if token[0] == ":":
            return token[1:]
        if token[0] == '"':
            try:
                return json.loads(token, strict=False)
            except ValueError:
                raise self._error(line, f"not a string: {token[:40]}") from None
        if token in CONSTANTS:
            return CONSTANTS[token]
        for number in (int, float):
            with suppress(ValueError):
                return number(token.rstrip("NM"))
        return token  # a symbol
