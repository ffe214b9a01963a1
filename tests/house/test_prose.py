"""Prose is executed, a page in a directory of its own: Python prints what stands below it, commands succeed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.commands import whence
from tests.house.api import page as api
from tests.house.imports import PAGES, ROOT
from tests.long import few
from tests.ports import free_ports
from whence.cli import main
from whence.cli.connect import joining
from whence.cli.parser import parser

README = PAGES[ROOT / "README.md"]
BLOCK = re.compile(r"```(python|sh)\n(.*?)```(?:\n\n```\n(.*?)```)?", re.DOTALL)
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))

RUN = {  # and how many blocks there are at least, so that none is overlooked
    "README.md": 3,
    "docs/application.md": 9,
    "docs/live.md": 4,
    "docs/operations.md": 4,
    "docs/probabilistic.md": 2,
    "docs/simulator.md": 1,
    "docs/tuning.md": 1,
    "docs/protocols.md": 4,
}
SLOW = re.compile(r"scale |up |audit traces|sim hostile(?!.*--trace)")
"""Only `make test-long` runs these; tests of the command run the like of them."""
ENDLESS = ("node", "chat")
"""They run until they are stopped: their arguments and keys are looked at."""


@pytest.mark.parametrize("whole", few([False, True], 1))
@pytest.mark.parametrize("page", few(RUN, 8))
def test_a_page_does_what_it_says(
    page: str, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    text = PAGES[ROOT / page]
    for number, free in zip((7001, 7002, 7003), free_ports(3), strict=True):
        text = text.replace(f"127.0.0.1:{number}", f"127.0.0.1:{free}")
    blocks = BLOCK.findall(text)
    assert len(blocks) >= RUN[page]
    names: dict[str, object] = {}
    for kind, block, shown in blocks:
        if kind == "sh":
            for line in block.splitlines():
                command(line, whole, capsys)
        elif saved := re.match(r'"""(\w+\.py):', block):
            (tmp_path / saved[1]).write_text(block, encoding="utf-8")
        else:
            capsys.readouterr()
            exec(compile(block, page, "exec"), names)
            assert not shown or capsys.readouterr().out == shown


def command(line: str, whole: bool, capsys: pytest.CaptureFixture[str]) -> None:
    """Run it, here unless it starts processes. Spark takes long to start, and this process judges the same."""
    program, *words = shlex.split(line, comments=True)
    if program != "whence":
        assert program == "curl" or words[0] in TARGETS, line
        return
    args = parser().parse_args(words)
    if args.command in ENDLESS:
        joining(args)
    elif (SLOW.match(" ".join(words)) and not whole) or (args.command == "up" and args.seconds is None):
        return
    elif args.command == "audit" and not whole:
        assert main([*words, "--engine", "local"]) == 0, line
    elif args.command == "up":
        code, said, _ = whence(*words)
        assert code == 0 and said, line
    else:
        assert main(words) == 0 and capsys.readouterr().out, line


def test_the_targets_exist() -> None:
    assert {"demo", "test"} <= set(re.findall(r"(?:^|`)make (\w+)", README, re.MULTILINE)) <= TARGETS
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_list_of_names_is_current() -> None:
    assert PAGES[ROOT / "docs" / "api.md"] == api(), "run `make api`"
