"""Prose is executed: the README's example prints what the README says, and its commands exist."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tests.ports import free_ports

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("example", "shown"), EXAMPLES)
def test_the_examples_print_what_they_say(example: str, shown: str) -> None:
    """The ports of the first one may be in use here: it is given free ones."""
    for number, port in zip((7001, 7002, 7003), free_ports(3), strict=True):
        example = example.replace(f"127.0.0.1:{number}", f"127.0.0.1:{port}")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "README.md", "exec"), {})
    assert printed.getvalue() == shown


def test_there_are_two_short_examples() -> None:
    assert len(EXAMPLES) == 2
    assert all(len([line for line in example.splitlines() if line.strip()]) <= 21 for example, _ in EXAMPLES)


def test_the_commands_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = re.findall(r"^make (\w+)", README, re.MULTILINE) + re.findall(r"`make (\w+)", README)
    assert {"demo", "test"} <= set(commands) <= set(targets)
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"
