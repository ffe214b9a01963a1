"""`whence --help` lists every command once, and an option has one meaning."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys

import pytest

from whence.cli import main
from whence.cli.parser import parser

COMMANDS: dict[str, argparse.ArgumentParser] = next(
    action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
)


def test_an_option_means_the_same_in_every_command() -> None:
    meanings: dict[str, set[tuple[object, ...]]] = {}
    for command in COMMANDS.values():
        for option in command._actions[1:]:  # the first is --help
            if not option.option_strings:
                continue
            [name] = option.option_strings
            meanings.setdefault(name, set()).add((option.dest, option.type, option.nargs, option.metavar, option.help))
    assert len(meanings) > 60 and {name: found for name, found in meanings.items() if len(found) > 1} == {}


def test_the_contents_name_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^  (\w+) {2,}\w", capsys.readouterr().out.partition("see it work:")[2], re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself_with_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"\nexamples:\n  whence {command}" in capsys.readouterr().out


def test_help_needs_no_heavy_import() -> None:
    code = "import sys; from whence.cli.parser import parser; parser().format_help(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert not {"numpy", "pyspark", "pyarrow", "numba", "rich", "asyncio"} & set(done.stdout.split())
