"""Tests stand alone: no module imports a test module. What tests share is in helper modules beside them."""

from __future__ import annotations

import ast
import re

from tests.conftest import TOGETHER
from tests.house.imports import ROOT, imports

TEST_MODULE = re.compile(r"\btests\.(?:\w+\.)*test_\w+|\bfrom tests(?:\.\w+)* import test_\w+")


def offences(code: str) -> list[str]:
    """Imports of test modules, also in code inside strings (for other processes)."""
    tree = ast.parse(code)
    found = [m for m in imports(tree) if TEST_MODULE.match(m)]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "tests":
            found += [alias.name for alias in node.names if alias.name.startswith("test_")]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "import" in node.value:
            found += TEST_MODULE.findall(node.value)
    return found


def test_nothing_imports_a_test_module() -> None:
    files = [p for folder in ("src", "tests", "soak", "bench", "examples") for p in (ROOT / folder).rglob("*.py")]
    wrong = {
        str(path.relative_to(ROOT)): found
        for path in files
        if path.name != "test_tests.py" and (found := offences(path.read_text(encoding="utf-8")))
    }
    assert wrong == {}


def test_the_check_can_fail() -> None:
    for code in (
        "from tests.live.net.test_disk import Life",
        "import tests.live.net.test_disk",
        "from tests.live.net import test_disk",
        "CODE = 'import os; from tests.live.net.test_disk import Life'",
    ):
        assert offences(code), code
    assert not offences("from tests.live.net.disks import Life")


def test_what_runs_on_one_worker_is_there() -> None:
    assert TOGETHER and all((ROOT / path).exists() for path in TOGETHER)
