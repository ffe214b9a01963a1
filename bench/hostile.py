"""A live cluster with strangers sending garbage to every socket, and without: does it keep its rate?"""

from __future__ import annotations

from typing import Any

from bench.live import MEMBERS, measure

Row = dict[str, Any]
OFFERED = (
    2000.0  # events/s of all members: well below saturation, where the strangers' own CPU would be what is measured
)


def main(seconds: float = 5.0) -> list[Row]:
    load: dict[str, Any] = {"rate": OFFERED / MEMBERS, "seconds": seconds}
    calm = measure("ours, 2,000 events/s, nobody else", "ours", **load)
    fuzzed = measure("ours, 2,000 events/s, strangers at every socket", "ours", attacked=True, **load)
    return [
        calm,
        fuzzed,
        {
            "what": "what was delivered, with strangers over without",
            "ratio": round(fuzzed["samples"] / calm["samples"], 3),
            "holds": "yes" if fuzzed["samples"] >= 0.95 * calm["samples"] else "NO",
        },
        {"what": "p50, with strangers over without", "ratio": round(fuzzed["p50_us"] / calm["p50_us"], 2)},
    ]
