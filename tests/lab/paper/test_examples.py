"""SURVEY Ex1, Ex2, Ex3 and Fig. 7, value for value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

    assert tables == list(EX3)


@pytest.mark.parametrize(("rule", "from_step"), [("LU", 2), ("LS", 1), ("VC", 2)])
def test_ex3_sees_what_is_not_written_down(rule: str, from_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock whose entries of one table do not change differs from the paper's by this step."""

    class Frozen(SkClock):
        def send(self, to: int) -> Entries:
            return self._keep(lambda: super(Frozen, self).send(to))

        def deliver(self, entries: Entries) -> None:
            self._keep(lambda: super(Frozen, self).deliver(entries))

        def _keep(self, event: Callable[[], Any]) -> Any:
            before = list(getattr(self, rule))
            found = event()
            getattr(self, rule)[:] = [v if k == self.me else before[k] for k, v in enumerate(getattr(self, rule))]
            return found

    monkeypatch.setattr(examples, "SkClock", Frozen)
    equal = [ours == paper for ours, paper in zip(ex3(), EX3, strict=True)]
    assert equal.index(False) == from_step
