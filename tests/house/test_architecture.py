"""docs/architecture.md is true: its tables are read and compared with the lines and the imports of every module."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.imports import PACKAGE, PAGES, ROOT, TREES, WINGS, imports, impurities, name_of, room_of

PURE = ("core/", "audit/judge")
EVERYBODY = {"", "errors", "exports", "files"}  # the package itself (its version), the errors, lazy names, whole files
VOCABULARIES = {"core/clock", "core/config", "core/ports"}  # who may know a room may speak the vocabulary it speaks
PAGE = PAGES[ROOT / "docs" / "architecture.md"]
WINGS_AT_MOST, BESIDE, TESTS_AT_MOST = 59_940, 330, 36_700
FUNCTION_LINES = 60
LONG_FUNCTIONS = {  # compiled kernels, where a call can cost more than a line
    "whence.lab.scale.engine._take",
    "whence.lab.scale.flood.flood",
    "whence.lab.scale.trees.repair",
    "whence.audit.judge.batch.kernel.judge",
    "whence.audit.judge.batch.kernel.rebuild",
}


def cells(columns: int) -> list[list[str]]:
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in PAGE.splitlines() if row.startswith("| `")]
    return [row for row in rows if len(row) == columns and re.fullmatch(r"`[\w/]+(\.py|/)`", row[0])]


def budgets() -> dict[str, int]:
    """Wing -> lines at most."""
    return {row[0].strip("`/"): int(row[3].replace(",", "")) for row in cells(4)}


def rooms() -> dict[str, set[str]]:
    """Room -> rooms it may know. A room's name stands alone: no two wings have one of the same name."""
    said = {row[0].strip("`").removesuffix(".py").strip("/"): row[2] for row in cells(3)}
    full = {name.split("/")[-1]: name for name in said}
    known = {room: {full[n] for n in re.findall(r"`(\w+)(?:\.py|/)?`", text)} for room, text in said.items()}
    for room, text in said.items():
        known[room] |= {*said, *WINGS} if text == "everything" else set()
    return {r: names | {v for n in names for v in known.get(n, set()) & VOCABULARIES} for r, names in known.items()}


def forbidden(room: str, tree: ast.AST, known: dict[str, set[str]]) -> list[str]:
    """The imports of a module of `room` that the tables do not allow."""
    allowed = known[room] | EVERYBODY | {room}
    mine = [m for m in imports(tree) if m.split(".")[0] == "whence"]
    return [m for m in mine if room_of(m) not in allowed]


def lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


@pytest.mark.parametrize("wing", WINGS)
def test_a_wing_keeps_its_budget(wing: str) -> None:
    assert lines(PACKAGE / wing) <= budgets()[wing]


def test_the_house_keeps_its_budget() -> None:
    assert sum(budgets().values()) <= WINGS_AT_MOST
    assert lines(PACKAGE) - sum(lines(PACKAGE / wing) for wing in WINGS) <= BESIDE
    assert lines(ROOT / "tests") <= TESTS_AT_MOST


def test_imports_follow_the_table() -> None:
    known, bad = rooms(), {}
    for path, tree in TREES.items():
        room = room_of(name_of(path))
        if room == "" or room in WINGS[:4]:  # what the package and a wing export, lazily
            continue
        assert room in known or room in EVERYBODY, f"{room} has no line in the table of docs/architecture.md"
        if found := forbidden(room, tree, {**known, "errors": set(), "exports": set(), "files": set()}):
            bad[str(path)] = found
    assert bad == {}


def test_wings_follow_the_table() -> None:
    """Also for what a wing's own `__init__` exports."""
    said = {row[0].strip("`/"): row[2] for row in cells(4)}
    for path, tree in TREES.items():
        wing = name_of(path).split(".")[1:2]
        if not wing or wing[0] not in WINGS[:4]:
            continue
        for module in imports(tree):
            if module.split(".")[0] == "whence" and (room := room_of(module)) not in EVERYBODY:
                other = room.split("/")[0]
                allowed = {wing[0], *re.findall(r"`([\w/]+)`", said[wing[0]])}
                assert other in allowed or room in allowed, f"{path}: {module}"


def test_the_core_and_the_judge_are_pure() -> None:
    found = {str(p): impurities(tree) for p, tree in TREES.items() if room_of(name_of(p)).startswith(PURE)}
    assert len(found) > 50 and {p: what for p, what in found.items() if what} == {}


def test_the_judge_needs_no_arrays() -> None:
    """Only the batch form may use NumPy and numba: the rest is in every installation."""
    for path, tree in TREES.items():
        if room_of(name_of(path)) == "audit/judge" and path.parent.name != "batch":
            assert not {m.split(".")[0] for m in imports(tree)} & {"numpy", "numba", "pyarrow", "pyspark"}, path


def graph() -> dict[str, set[str]]:
    """Module -> modules of the same room that it imports, also inside functions."""
    known = {name_of(path): set(imports(tree)) for path, tree in TREES.items()}
    return {me: {m for m in found & set(known) if m != me and room_of(m) == room_of(me)} for me, found in known.items()}


def cycle(known: dict[str, set[str]]) -> list[str]:
    """A cycle, if there is one."""
    try:
        graphlib.TopologicalSorter(known).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_no_cycle_inside_a_room() -> None:
    assert cycle(graph()) == []


def long_functions(tree: ast.AST, path: str = "") -> dict[str, int]:
    """Function -> lines, where a function is too long; those inside it count with it."""
    found: dict[str, int] = {}
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= long_functions(child, path)
            continue
        name = f"{path}.{child.name}".strip(".")
        count = (child.end_lineno or child.lineno) - child.lineno + 1
        if not isinstance(child, ast.ClassDef) and count > FUNCTION_LINES:
            found[name] = count
        found |= long_functions(child, name)
    return found


def test_functions_are_short() -> None:
    found = {f"{name_of(p)}.{f}": n for p, tree in TREES.items() for f, n in long_functions(tree).items()}
    assert {f: n for f, n in found.items() if f not in LONG_FUNCTIONS} == {}


def test_one_name_means_one_thing() -> None:
    """A public class has a name of its own in the whole house, so that a reader can grep for it."""
    defined: dict[str, list[str]] = {}
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(name_of(path))
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


def test_the_checks_can_fail() -> None:
    def bad(room: str, code: str) -> list[str]:
        return forbidden(room, ast.parse(code), rooms())

    assert bad("core/ring", "from whence.core.cast import view") == ["whence.core.cast"]
    assert bad("core/order", "def f():\n    import whence.core.member") == ["whence.core.member"]
    assert bad("audit/trace", "from whence.core import clock") == ["whence.core.clock"]
    assert not bad("core/ring", "from whence.core.clock import EventId\nfrom whence.errors import UsageError")
    for code in (
        "import time",
        "from os import path",
        "import random\nrandom.shuffle([])",
        "from random import choice",
        "import random\nr = random.Random()",
        "open('x')",
    ):
        assert impurities(ast.parse(code)), code
    assert not impurities(ast.parse("import random\ndef f(rng: random.Random): return rng.random()"))
    body = "\n".join(["    x = 1"] * FUNCTION_LINES)
    assert long_functions(ast.parse(f"class A:\n  def f():\n{body}")) == {"A.f": FUNCTION_LINES + 1}
    assert set(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


def tracked_files() -> list[Path]:
    """The files git knows; without git or a checkout, those a checkout would have."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
        return [ROOT / name for name in done.stdout.decode().split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        hidden = (".venv", ".git", "build")
        return [p for p in ROOT.rglob("*") if p.is_file() and p.relative_to(ROOT).parts[0] not in hidden]


def test_no_lock_says_where_packages_come_from() -> None:
    locks = [p for p in tracked_files() if p.exists() and ("lock" in p.suffix or p.name.startswith("requirements"))]
    assert ROOT / "requirements.lock" in locks or not (ROOT / ".git").exists()
    for lock in locks:
        for number, line in enumerate(lock.read_text(encoding="utf-8").splitlines(), 1):
            assert not re.search(r"https?:|file:|index-url|find-links|trusted-host", line), (
                f"{lock.name}:{number}: {line}"
            )
