"""The hostile world under a mechanism of the survey, shortened."""

from __future__ import annotations

from typing import Any

from whence.lab.sim.scenario import Loaded
from whence.lab.sim.soak import with_mechanism

SHORT: dict[str, Any] = {
    "members": 8,
    "duration": "50r",
    "settle": "40r",
    "cluster.workload.rate": 0.3,
    "chaos.start": "6r",
    "chaos.crash": "10r",
    "chaos.leave": "25r",
    "fault": [
        {"at": "10r", "kind": "crash", "who": "n5", "for": "6r", "disk": True},
        {"at": "15r", "kind": "partition", "who": ["n1", "n2", "n3"], "for": "8r"},
    ],
}
"""The hostile world, shorter, with more crashes for its length."""


def short(mechanism: str, **more: Any) -> Loaded:
    return with_mechanism(mechanism, {**SHORT, **more})
