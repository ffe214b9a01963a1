"""SURVEY Ex1, Ex2, Ex3 and Fig. 7, value for value."""

from __future__ import annotations

import pytest

from whence.core.order.survey.base import Message
from whence.core.order.survey.first import Carried, FirstGeneration, sequence
from whence.core.order.survey.vector import VectorClock
from whence.lab.paper.survey import examples
from whence.lab.paper.survey.examples import (
    EX1_VECTORS,
    EX3,
    M1,
    M2,
    M3,
    M4,
    Entries,
    SkClock,
    ex3,
    replay,
    vectors,
)


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

    assert tables == list(EX3)


def test_ex3_sees_an_update_that_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """`LU` of what is learned is not set: it is never told on."""

    class Forgets(SkClock):
        def deliver(self, entries: Entries) -> None:
            before = list(self.LU)
            super().deliver(entries)
            self.LU[:] = [lu if k == self.me else before[k] for k, lu in enumerate(self.LU)]

    monkeypatch.setattr(examples, "SkClock", Forgets)
    assert [ours == paper for ours, paper in zip(ex3(), EX3, strict=True)] == [True, True, False, False, False]
