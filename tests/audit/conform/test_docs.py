"""docs/conform.md is true: its tables are the code's, its commands are understood, its session is one."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from whence.audit.conform import FEATURES, SCENARIOS
from whence.audit.conform.system import DEFAULT_CLAIMS, decode, features_of, reported
from whence.cli.parser import parser

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "conform.md").read_text(encoding="utf-8")


def rows(title: str) -> list[list[str]]:
    """The cells of the table with this header."""
    table = TEXT.partition(f"| {title} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_features() -> None:
    told = {name.strip("`"): promise for name, promise in rows("feature")}
    assert list(told) == list(FEATURES)
    for name, promise in told.items():
        assert promise.startswith(FEATURES[name].partition(" (")[0])
    assert "Without it: " + ", ".join(f"`{f}`" for f in DEFAULT_CLAIMS) in TEXT


def test_scenarios() -> None:
    told = {name.strip("`"): tuple(re.findall(r"`([\w-]+)`", needs)) for name, needs, *_ in rows("scenario")}
    assert told == {s.name: s.needs for s in SCENARIOS.values()}


def test_commands() -> None:
    block = TEXT.partition("```\n")[2].partition("```")[0]
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(commands) == 6
    for command in commands:
        args = parser().parse_args(command[1:])
        assert args.command == "conform"
        for word in args.system:
            assert not word.startswith("examples/") or (ROOT / word).exists()


def test_the_session_is_one() -> None:
    lines = re.findall(r"^([<>]) (\{.*\})$", TEXT, re.MULTILINE)
    assert len(lines) == 9
    for way, line in lines:
        message = json.loads(line)
        if way == "<":
            body = decode(line.encode(), "n1").body
            if body["type"] == "init_ok":
                assert features_of(body, "n1") == DEFAULT_CLAIMS
            if body["type"] == "delivered":
                assert reported(body, "n1").value in ("question", "answer")
        else:
            assert message["dest"] == "n1"
