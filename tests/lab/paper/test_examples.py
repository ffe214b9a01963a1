"""SURVEY Ex1, Ex2, Ex3 and Fig. 7, value for value."""

from __future__ import annotations

import pytest

from whence.core.order.survey.base import Message
from whence.core.order.survey.first import Carried, FirstGeneration, sequence
from whence.core.order.survey.vector import VectorClock
from whence.errors import UsageError
from whence.lab.paper.survey.examples import (
    EX1_VECTORS,
    EX3,
    M1,
    M2,
    M3,
    M4,
    SkClock,
    comparisons,
    ex3,
    replay,
    vectors,
)


def test_the_paper_is_reproduced() -> None:
    for _, text, paper, ours in comparisons():
        assert paper == ours, text


def test_a_wrong_rule_would_be_seen() -> None:
    class Eager(VectorClock):
        def wait(self, message: object, now: int) -> None:
            return None

    assert vectors(replay(VectorClock)) == EX1_VECTORS
    assert vectors(replay(Eager)) != EX1_VECTORS  # m3 would be in m4's past

    class Literal(FirstGeneration):
        """Fig. 3 to the letter: own messages are appended to `previousDelivered` too."""

        def deliver(self, message: Message, now: int) -> list[Message]:
            found = super().deliver(message, now)
            if message.sender == self.me:
                self.previous.append(Carried(message.sender, message.seq, message.body))
            return found

    assert sequence(replay(FirstGeneration).messages["m4"]) == (M2, M3, M4)
    assert sequence(replay(Literal).messages["m4"]) == (M1, M2, M3, M4)  # not what Fig. 4 shows


def test_ex3_needs_every_rule() -> None:
    tables = list(ex3())
    assert [t for t, _ in tables] == [t for t, _ in EX3]
    assert len({table for _, table in tables}) == 5


def test_a_clock_without_such_a_process_is_refused() -> None:
    with pytest.raises(UsageError):
        SkClock(3, 3)
    with pytest.raises(UsageError):
        SkClock(0, 3).send(0)
