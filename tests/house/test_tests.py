"""Tests stand alone: no module imports a test module. What tests share is in helper modules beside them."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import TOGETHER
from tests.house.imports import CODE, ROOT, parsed

IMPORT = re.compile(r"\btests\.(?:\w+\.)*test_\w+|\bfrom tests[\w.]* import (?:\(\s*)?(?:\w+,\s*)*test_\w+")
"""Of a test module; also in code inside strings, for other processes."""


def test_nothing_imports_a_test_module() -> None:
    others = {path: code for path, code in CODE.items() if path != Path(__file__)}
    assert {path: found for path, code in others.items() if (found := IMPORT.findall(code))} == {}


def test_the_check_can_fail() -> None:
    for code in (
        "from tests.live.net.test_disk import Life",
        "import tests.live.net.test_disk",
        "from tests.live.net import test_disk",
        "from tests.live.net import (\n    disks,\n    test_disk,\n)",
        "CODE = 'import os; from tests.live.net.test_disk import Life'",
    ):
        assert IMPORT.search(code), code
    assert not IMPORT.search("from tests.live.net.disks import Life")


def test_what_runs_on_one_worker_is_there() -> None:
    assert TOGETHER and all((ROOT / path).exists() for path in TOGETHER)


def test_what_others_import_is_there() -> None:
    """The type checker looks at `src` alone."""
    missing = []
    for path, code in CODE.items():
        for node in (
            ast.walk(parsed(code)) if path.parts[len(ROOT.parts)] in ("bench", "examples", "scorecard", "soak") else ()
        ):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("whence"):
                there = import_module(str(node.module))
                names = [alias.name for alias in node.names if not hasattr(there, alias.name)]
                missing += [f"{path}: {n}" for n in names if find_spec(f"{node.module}.{n}") is None]
    assert missing == []
