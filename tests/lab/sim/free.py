"""A cluster without tickets under faults, as a scenario."""

from __future__ import annotations

from whence.lab.sim.actions import MoveAction
from whence.lab.sim.scenario import Loaded, parse

R = 250 * 10**6  # a round


WORLD = """
members = 10
round = "250ms"
duration = "60r"
settle = "50r"
wire = true
snapshot_delay = "20ms"
[network]
latency = "normal"
mean = "5ms"
sd = "3ms"
loss = 0.05
dup = 0.02
reorder = 0.1
reorder_by = "100ms"
[clocks]
offset = "1h"
drift = 100
[cluster]
order = {order}
recovery = "Rk"
mode = "{mode}"
[cluster.contract]
{contract}
move = false
[cluster.workload]
rate = 0.4
{more}
"""


CHAOS = """
[chaos]
start = "8r"
crash = "20r"
down = "8r"
disk = 0.5
leave = "30r"
away = "8r"
cut = "20r"
cut_for = "6r"
slow = "20r"
slow_by = "400ms"
slow_for = "6r"
clock = "40r"
hostile = "15r"
[[fault]]
at = "10r"
kind = "crash"
who = "n6"
for = "5r"
disk = true
[[fault]]
at = "25r"
kind = "partition"
who = ["n1", "n7", "n8"]
for = "10r"
"""


MOVES = tuple(
    MoveAction(at=at * R, who=who, entries=entries, keys=keys)
    for at, who, entries, keys in ((12, "n2", 1024, 5), (12, "n4", 700, 3), (27, "n7", 600, 4), (29, "n3", 900, 4))
)
"""Two at the same moment, then one on each side of the partition."""


SIZE = "entries = 512\nkeys = 4"


def world(order: str = '"probabilistic"', mode: str = "rounds", contract: str = SIZE, more: str = "") -> Loaded:
    return parse(WORLD.format(order=order, mode=mode, contract=contract, more=more))
