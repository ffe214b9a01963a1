"""Ids that are made when they are asked for."""

from __future__ import annotations

import pytest

from whence.live.net.queues import EventIds


def test_ids_of_two_tenures_are_a_sequence() -> None:
    ids = EventIds()
    assert not ids
    assert ids == []
    ids.add("0:1.0.1:", range(7, 9), "@a#1")
    ids.add("2:1.0.3:", range(1, 3), "@a#1")
    names = ["0:1.0.1:7@a#1", "0:1.0.1:8@a#1", "2:1.0.3:1@a#1", "2:1.0.3:2@a#1"]
    assert list(ids) == names
    assert [ids[place] for place in range(-4, 4)] == names + names
    assert ids[1:3] == names[1:3]
    assert ids[::-1] == names[::-1]
    assert ids == names
    assert ids == tuple(names)
    assert ids != names[:3]
    assert names[2] in ids
    assert repr(ids) == repr(names)
    for outside in (4, -5):
        with pytest.raises(IndexError):
            ids[outside]
