"""`whence --help` lists every command once, and shells can be taught them."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from whence.cli import main
from whence.cli.parser import CONTENTS, parser

COMMANDS = list(next(a for a in parser()._actions if a.dest == "command").choices or ())


def test_the_contents_name_every_command_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    listed = re.findall(r"^  (\w+) {2,}\w", capsys.readouterr().out.partition("see it work:")[2], re.MULTILINE)
    assert sorted(listed) == sorted(COMMANDS)
    assert {name for names in CONTENTS.values() for name in names} <= set(COMMANDS), "nothing that is not there"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    "typed, offered",
    [("so", "soak"), ("sim --form", "--format"), ("sim --format j", "jsonl"), ("completion z", "")],
)
def test_bash_completes(typed: str, offered: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    words = ["whence", *typed.split()]
    script = (
        f"{capsys.readouterr().out}\nCOMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _whence\n"
        'echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == offered.split()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(command in script for command in COMMANDS)
