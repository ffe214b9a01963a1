"""Subgroups and groups that share members, as experiments: what must go wrong does."""

from __future__ import annotations

import pytest

from whence.lab.paper.survey.groups import compaction, shared, zones


@pytest.mark.parametrize("seed", range(5))
def test_a_tree_keeps_order_and_a_circle_does_not(seed: int) -> None:
    tree, circle = zones("tree", seed), zones("circle", seed)
    assert tree["twice"] == tree["early"] == 0 and tree["carried"] == tree["events"] * tree["links"]
    assert circle["twice"] > 0


def test_links_that_reorder_break_it() -> None:
    assert any(zones("not-fifo", seed)["early"] for seed in range(5))


def test_groups_need_one_entry_each() -> None:
    assert all(shared(True, seed)["early"] == 0 for seed in range(5))
    assert any(shared(False, seed)["early"] for seed in range(40))


def test_the_formula_of_the_survey_counts_entries() -> None:
    sizes = list(compaction())
    assert all(pays == number for _, _, pays, _, number in sizes)
    assert (4, 4, False, True, False) in sizes, "all four entries: below the bound as a share, and larger"
