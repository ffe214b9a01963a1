"""What a recorder counts itself: control information and what is held. The simulator's own buffers say the same."""

from __future__ import annotations

from pathlib import Path

from whence.audit.trace import Row
from whence.core.recorder import HELD, Recorder
from whence.lab.sim.run import run
from whence.lab.sim.scenario import load

SCENARIOS = Path(__file__).parents[3] / "src" / "whence" / "lab" / "scenarios"


def test_what_publish_and_receive_rows_count() -> None:
    """Control information is on publish rows alone; held is what came and was neither delivered nor dropped."""
    rows: list[Row] = []
    run(load(SCENARIOS / "hostile.toml"), 3, sink=rows.append)
    held: dict[str, dict[str, None]] = {}
    largest = 0
    for row in rows:
        assert (row.control is not None and row.control > 0) is (row.kind == "publish")
        mine = held.setdefault(row.member, {})
        if row.kind == "join":
            mine.clear()
        elif row.kind == "receive":
            mine[str(row.event)] = None
            assert row.held == len(mine)
            largest = max(largest, len(mine))
        else:
            assert row.held is None
            if row.kind in ("deliver", "drop"):
                mine.pop(str(row.event), None)
    assert largest > 3, "nothing ever waited: the scenario shows nothing"


def test_what_is_held_is_bounded() -> None:
    rows: list[Row] = []
    recorder = Recorder(rows.append, run="r", cluster="c", member="a#1", order="causal")
    counted = [recorder._hold(f"0:1.0.1:{n}@b#1") for n in range(HELD + 100)]
    assert counted[:3] == [1, 2, 3] and max(counted) == counted[-1] == HELD
