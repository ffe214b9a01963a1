"""What tests of several rooms need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from test_cli_live import Command


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    """Starts `whence` commands; whatever a failing test leaves behind is killed."""
    from test_cli_live import LIMIT, Command

    started: list[Command] = []

    def begin(*args: object) -> Command:
        started.append(Command(*args))
        return started[-1]

    yield begin
    for command in started:
        command.process.kill()
        command.process.wait(LIMIT)
