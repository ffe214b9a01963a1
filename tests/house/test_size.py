"""Size and shape: files of at most 600 lines, functions of at most 60, no import cycle inside a room, and one meaning
for each central name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.house.imports import MODULES, PACKAGE, ROOT, imports

FILE_LINES = 600
FUNCTION_LINES = 60

# To be removed: compiled kernels, where a call can cost more than a line; measure before you split them.
LONG_FUNCTIONS = {
    "whence.scale.fast._replay",
    "whence.scale.fast._settle",
    "whence.scale.fast._block",
    "whence.scale.general._take",
    "whence.judge.batch.verdicts.judge",
    "whence.judge.batch.kernel.rebuild",
}


def python_files() -> list[Path]:
    return sorted(p for folder in ("src", "tests", "soak", "bench", "examples") for p in (ROOT / folder).rglob("*.py"))


def long_files() -> dict[str, int]:
    """Path -> lines, where a file is too long."""
    lines = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in python_files()}
    return {path: count for path, count in lines.items() if count > FILE_LINES}


def long_functions(tree: ast.AST) -> dict[str, int]:
    """Function -> lines, where a function is too long; those inside it count with it."""
    found: dict[str, int] = {}

    def visit(node: ast.AST, path: str) -> None:
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                visit(child, path)
                continue
            name = f"{path}.{child.name}".strip(".")
            count = (child.end_lineno or child.lineno) - child.lineno + 1
            if not isinstance(child, ast.ClassDef) and count > FUNCTION_LINES:
                found[name] = count
            visit(child, name)

    visit(tree, "")
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def graph() -> dict[str, set[str]]:
    """Module -> modules of the same room that it imports, also inside functions."""
    names = {name_of(path) for path in MODULES}
    known: dict[str, set[str]] = {}
    for path in MODULES:
        me, tree = name_of(path), ast.parse(path.read_text(encoding="utf-8"))
        wanted = set(imports(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):  # `from package import module`
                wanted |= {f"{node.module}.{a.name}" for a in node.names} & names
                if all(f"{node.module}.{a.name}" in names for a in node.names):
                    wanted.discard(str(node.module))
        room = me.split(".")[:2]
        known[me] = {w for w in wanted & names if w != me and w.split(".")[:2] == room}
    return known


def cycles(known: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(known[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = sorted(stack[at:])
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(known):
        if node not in index:
            visit(node)
    return found


def test_files_are_short() -> None:
    assert long_files() == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_functions_are_short(path: Path) -> None:
    found = long_functions(ast.parse(path.read_text(encoding="utf-8")))
    assert {f: count for f, count in found.items() if f"{name_of(path)}.{f}" not in LONG_FUNCTIONS} == {}


def test_no_cycle_inside_a_room() -> None:
    assert cycles(graph()) == []


def test_the_checks_can_fail() -> None:
    body = "\n".join(["    x = 1"] * FUNCTION_LINES)
    assert long_functions(ast.parse(f"class A:\n  def f():\n{body}")) == {"A.f": FUNCTION_LINES + 1}
    assert long_functions(ast.parse("def f():\n    return 1")) == {}
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert cycles({"a": {"b"}, "b": set()}) == []


def test_a_central_name_means_one_thing() -> None:
    names = ("Found", "State", "Tenure", "Life", "Output", "Outcome", "Run")
    defined: dict[str, list[str]] = {name: [] for name in names}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            said = [node.name] if isinstance(node, ast.ClassDef) else [t.id for t in targets if isinstance(t, ast.Name)]
            for name in set(said) & set(names):
                defined[name].append(name_of(path))
    assert {name: places for name, places in defined.items() if len(places) != 1} == {}
