"""`whence --help` lists every command once, an option has one meaning, and shells can be taught them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from whence.cli import main
from whence.cli.completion import commands_of, options_of
from whence.cli.parser import parser

COMMANDS = commands_of(parser())


def test_an_option_means_the_same_in_every_command() -> None:
    meanings: dict[str, set[tuple[object, ...]]] = {}
    for command in COMMANDS.values():
        for option in options_of(command):
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


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    "typed, offered",
    [("sta", "status"), ("sim --sche", "--schedule"), ("audit --engine l", "local"), ("keys is", "issue")],
)
def test_bash_completes(typed: str, offered: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["whence", *typed.split()]
    script = (
        f"{completion('bash', capsys)}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _whence\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == offered.split()


def test_zsh(capsys: pytest.CaptureFixture[str]) -> None:
    script = completion("zsh", capsys)
    assert "bashcompinit" in script and all(command in script for command in COMMANDS)


def completion(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["--completion", shell])
    assert ended.value.code == 0
    return capsys.readouterr().out
