"""docs/api.md, made from the code: what can be imported, a line each. `python -m tests.house.api` writes it."""

from __future__ import annotations

import importlib
import inspect
import re

from tests.house.imports import ROOT

HEAD = """\
# What you can import

One line each; `help(whence.join)` and the like say the rest. Beside these, only what
[trace.md](trace.md) names is meant for applications. Made by `make api`.
"""
MODULES = ("whence", "whence.live", "whence.live.web", "whence.testing", "whence.audit", "whence.lab")


def page() -> str:
    parts = [HEAD]
    for module in MODULES:
        there = importlib.import_module(module)
        parts += [f"\n## {module}\n\n", inspect.cleandoc(there.__doc__ or "").splitlines()[0], "\n\n"]
        parts += [line(name, getattr(there, name)) for name in there.__all__ if not name.startswith("_")]
    return "".join(parts)


def line(name: str, there: object) -> str:
    """`name`: how its docstring begins, without a usage before it, up to a full stop, semicolon or colon."""
    text = " ".join(inspect.cleandoc(there.__doc__ or "").partition("\n\n")[0].split())
    text = re.sub(r"^`[^`]*`: ", "", text)
    first = re.match(r"(?:`[^`]*`|\([^)]*\)|[^`(.;:]|[.;:](?=[^ ]))*", text)
    sentence = first[0] if first and callable(there) and there.__doc__ else f"`{there}`"
    return f"* `{name}{'()' if inspect.isroutine(there) else ''}`: {sentence}\n"


if __name__ == "__main__":
    (ROOT / "docs" / "api.md").write_text(page(), encoding="utf-8")
