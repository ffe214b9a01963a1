"""Read the imports of modules, and what a pure module may not do."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "whence"
MODULES = sorted(PACKAGE.rglob("*.py"))

IMPURE = {"asyncio", "os", "secrets", "select", "selectors", "socket", "subprocess", "threading", "time", "uuid"}


def imports(tree: ast.AST) -> list[str]:
    """Every module that is imported, also inside functions and under TYPE_CHECKING."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides which room is meant"
            found += [
                f"{node.module}.{alias.name}" if node.module == "whence" else str(node.module) for alias in node.names
            ]
    return found


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
