"""The arrows of docs/architecture.md: the table there is read, and so are the imports of every module."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.imports import MODULES, PACKAGE, ROOT, imports, impurities

CORE = ("clock", "cast", "ring", "order", "wire", "ports", "member", "judge")
EVERYBODY = {"", "errors"}  # the package itself (its version) and the errors
VOCABULARIES = {"clock", "config", "ports"}  # whoever may know a room may speak the vocabulary that room speaks


def room_of(path: Path) -> str:
    """`clock/cct.py` -> `clock`, `member.py` -> `member`, `__init__.py` -> the empty name."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def table() -> dict[str, set[str]]:
    """Room -> rooms it may know, from the table in docs/architecture.md."""
    known: dict[str, set[str]] = {}
    everything: list[str] = []
    for line in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or len(cells) != 3 or not (room := re.fullmatch(r"`(\w+)(?:\.py|/)`", cells[0])):
            continue
        names = set(re.findall(r"`(\w+)(?:\.py|/)?`", cells[2]))
        if cells[2] == "everything":
            everything.append(room[1])
        if "all of the above" in cells[2]:
            names |= set(known)
        known[room[1]] = names
    for room_name in everything:
        known[room_name] = set(known)
    return {
        name: names | {v for n in names for v in known.get(n, set()) & VOCABULARIES} for name, names in known.items()
    }


def forbidden_imports(room: str, modules: list[str], known: dict[str, set[str]]) -> list[str]:
    """The imports of `room` that the table does not allow."""
    allowed = known[room] | EVERYBODY | {room}
    there = set(known) | {room_of(path) for path in MODULES}
    rooms = {m: m.split(".")[1] for m in modules if m.startswith("whence.")}
    return [m for m, target in rooms.items() if target in there and target not in allowed]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_follow_the_table(path: Path) -> None:
    known, room = table(), room_of(path)
    if room in EVERYBODY:
        modules = imports(ast.parse(path.read_text(encoding="utf-8")))
        # The package shows the live API, for type checkers and lazily: nothing else is imported with it.
        allowed = ("whence.errors", "whence.api") if path.parent == PACKAGE and path.name == "__init__.py" else ()
        assert not [m for m in modules if m.split(".")[0] == "whence" and not m.startswith(allowed)]
        return
    assert room in known, f"{room} has no line in the table of docs/architecture.md"
    bad = forbidden_imports(room, imports(ast.parse(path.read_text(encoding="utf-8"))), known)
    assert not bad, f"{room} may know {sorted(known[room]) or 'nothing'}, but imports {bad}"


@pytest.mark.parametrize("path", [p for p in MODULES if room_of(p) in CORE], ids=lambda p: str(p.relative_to(PACKAGE)))
def test_the_core_is_pure(path: Path) -> None:
    assert not impurities(ast.parse(path.read_text(encoding="utf-8")))


def test_the_judge_does_not_trust_what_it_judges() -> None:
    mine = [path for path in MODULES if room_of(path) == "judge"]
    modules = {m for path in mine for m in imports(ast.parse(path.read_text(encoding="utf-8")))}
    known = {".".join(m.split(".")[:2]) for m in modules if m.split(".")[0] == "whence"}
    assert mine and known <= {"whence.errors", "whence.judge", "whence.trace"}


def test_the_judge_needs_no_arrays() -> None:
    """Only the batch form may use NumPy and numba: the rest is in every installation."""
    for path in MODULES:
        if room_of(path) == "judge" and path.parent.name != "batch":
            needed = {m.split(".")[0] for m in imports(ast.parse(path.read_text(encoding="utf-8")))}
            assert not needed & {"numpy", "numba", "pyarrow", "pyspark"}, path


def test_the_table_is_read_as_written() -> None:
    known = table()
    assert known["clock"] == set() and known["trace"] == set()
    assert known["cast"] == known["ring"] == known["order"] == {"clock"}
    assert {"cast", "ring", "order", "wire", "ports", "clock"} <= known["member"]
    assert "net" not in known["sim"] and known["cli"] >= {"sim", "member"}


def test_the_checks_can_fail() -> None:
    def bad(room: str, code: str) -> list[str]:
        return forbidden_imports(room, imports(ast.parse(code)), table())

    assert bad("ring", "from whence.cast import view") == ["whence.cast"]
    assert bad("order", "def f():\n    import whence.member") == ["whence.member"]
    assert bad("trace", "from whence import clock") == ["whence.clock"]
    assert not bad("ring", "from whence.clock import EventId\nfrom whence.errors import UsageError\nimport math")
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
