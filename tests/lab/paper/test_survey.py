"""`whence paper survey/...`: the claims hold, and the measurements can tell orders apart."""

from __future__ import annotations

import pytest

from whence.core.order.survey.vector import CompactStamp, VectorStamp
from whence.lab.paper import Experiment
from whence.lab.paper.survey.table1 import change, fixed_bytes, join_and_crash, pay


@pytest.fixture(autouse=True)
def needs_the_extra() -> None:
    for package in ("pyarrow", "numba", "matplotlib"):
        pytest.importorskip(package, reason="the papers' experiments need the extra `paper`")


def test_the_examples_are_as_printed() -> None:
    from whence.lab.paper.claims import judged
    from whence.lab.paper.frame import RunOptions

    study = Experiment("survey/examples").study
    outcome = study.outcome(study.measure(RunOptions(quick=True)))
    assert len(outcome.rows) == 17 and {j.status for j in judged("survey/examples", outcome.statistics)} == {"holds"}
    outcome.rows[3]["equal"] = False
    found = judged("survey/examples", study.outcome(outcome.rows).statistics)
    assert [j.key for j in found if j.status == "fails"] == ["ex1-order"]


def test_the_load_is_the_same_for_every_order() -> None:
    vector, first, physical = (pay(o, 6, 10.0, seconds=2.0) for o in ("vector", "first-unstable", "physical"))
    assert vector["multicasts"] == first["multicasts"] == physical["multicasts"] > 0
    assert vector["messages"] == first["messages"] == physical["messages"]
    assert first["blocked"] == 0 < vector["blocked"] < physical["blocked"] == 1  # stability takes the bound, always
    assert vector["undelivered"] == physical["undelivered"] == 0 and vector["violation"] is None
    assert pay("vector", 6, 10.0, seconds=2.0) == vector


def test_a_change_of_the_view_costs_with_the_square_of_the_members() -> None:
    small, large = change("vector", 4), change("vector", 8)
    assert large["change_messages"] > 3 * small["change_messages"] and large["state_bytes"] > small["state_bytes"]
    assert 20 <= small["pause_ms"] <= 150


def test_a_joiner_in_the_stack_costs_a_snapshot() -> None:
    first, vector = join_and_crash("first-unstable", 5), join_and_crash("vector", 5)
    assert first["violation"] is vector["violation"] is None
    assert first["change_messages"] == vector["change_messages"] < change("vector", 5)["change_messages"]
    assert vector["pause_ms"] == 0  # measured: nobody stops for a joiner
    assert first["snapshot_bytes"] > vector["snapshot_bytes"] and vector["join_ms"] > 30  # what is carried, too


def test_sizes_as_the_survey_reckons() -> None:
    assert fixed_bytes(VectorStamp((1,) * 200), 200) == 800  # "200 processes and 32-bit slots: 800 bytes"
    assert fixed_bytes(VectorStamp((1,) * 10), 10) == 40  # "10 replicas: 40 bytes"
    assert fixed_bytes(CompactStamp(((1, 7),)), 4) == 4.25  # "only two bits for the process identifier"
