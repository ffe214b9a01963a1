"""Every source and every page, read once; the imports of modules, and what a pure module may not do."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "whence"
WINGS = ("core", "live", "lab", "audit", "cli")
CODE = {  # every source that is ours, read once
    path: path.read_text(encoding="utf-8")
    for folder in ("src", "tests", "bench", "soak", "scorecard", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
PAGES = {  # every page, read once
    path: path.read_text(encoding="utf-8")
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.md")])
}
parsed = cache(ast.parse)
TREES = {path: parsed(code) for path, code in CODE.items() if path.is_relative_to(PACKAGE)}

IMPURE = {"asyncio", "os", "secrets", "select", "selectors", "socket", "subprocess", "threading", "time", "uuid"}


def name_of(path: Path) -> str:
    """`src/whence/core/clock/cct.py` -> `whence.core.clock.cct`."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in TREES}


def room_of(module: str) -> str:
    """`whence.core.clock.cct` -> `core/clock`, `whence.cli.node` -> `cli`, `whence.errors` -> `errors`."""
    parts = module.split(".")[1:]
    return "/".join(parts[:2] if parts[:1] != ["cli"] and parts[:1] and parts[0] in WINGS else parts[:1])


def imports(tree: ast.AST) -> list[str]:
    """Every module that is imported, also inside functions and under TYPE_CHECKING."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides which room is meant"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.append(inner if inner in NAMES or node.module == "whence" else str(node.module))
    return list(dict.fromkeys(found))


def impurities(tree: ast.AST) -> list[str]:
    """What a pure core does not do: I/O, clocks, threads, global or unseeded randomness."""
    found = [m for m in imports(tree) if m.split(".")[0] in IMPURE]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "random":
            found += [f"random.{a.name}" for a in node.names if a.name != "Random"]
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
            found += [f"random.{node.attr}"] if node.attr != "Random" else []
        if isinstance(node, ast.Call) and not node.args and ast.unparse(node.func) in ("random.Random", "Random"):
            found.append("an unseeded Random()")
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "input", "print")
        ):
            found.append(f"{node.func.id}()")
    return found
