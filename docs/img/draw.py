"""The pictures of docs/protocols.md, drawn from real runs of the simulator: `python docs/img/draw.py [DIRECTORY]`."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

from whence.audit.report import charts, gather
from whence.audit.trace import Row
from whence.lab import run

W, LEFT, LANE, TOP = 640, 46, 34, 26
LATENCY_NS = 20_000_000
INK, SOFT, RULE, BLUE, AMBER, PURPLE, RED = "#1d2327", "#5b6670", "#d9dde1", "#2f6fb3", "#e0b84c", "#7b4fb5", "#c62828"

SMALL_RING = 'ring = "neighbours", ring_k = 1, ring_round = "1r", delta = "21ms", mode = "rounds"'
"""Each process vouches for its three neighbours, in every round."""
GOSSIP = """
members = 10
round = "100ms"
duration = "8s"
cluster = { tickets = 1, coordinators = 1, order = "causal", mode = "rounds", fanout = 2, termination = 4 }
network = { latency = "constant", mean = "20ms" }
fault = [{ at = "5s", kind = "publish", who = "n0" }]
"""
HOLD = """
members = 3
round = "100ms"
duration = "8s"
cluster = { tickets = 3, coordinators = 2, order = "causal", mode = "rounds", fanout = 2, termination = 1 }
network = { latency = "constant", mean = "20ms" }
fault = [
  { at = "5s", kind = "slow", src = "n0", dst = "n2", by = "1500ms", for = "1500ms" },
  { at = "5500ms", kind = "publish", who = "n0" },
  { at = "5605ms", kind = "publish", who = "n1" },
]
"""
RING = """
members = 7
round = "250ms"
duration = "60s"
cluster = { SMALL_RING, tickets = 5, coordinators = 4, order = "causal" }
fault = [
  { at = "18s", kind = "crash", who = "n1" },
  { at = "38s", kind = "coordinate", who = "n5" },
  { at = "46s", kind = "resign", who = "n2" },
  { at = "48s", kind = "coordinate", who = "n6" },
  { at = "58s", kind = "publish", who = "n0" },
]
"""


def rows_of(scenario: str, seed: int = 1) -> list[Row]:
    """What the members did."""
    rows: list[Row] = []
    run(scenario.replace("SMALL_RING", SMALL_RING), seed, sink=rows.append)
    return rows


def picture(width: int, height: int, title: str, body: list[str]) -> str:
    """A whole file; on white, so that it is read on any page."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" rx="8" fill="#fff" stroke="{RULE}"/>{"".join(body)}</svg>\n'
    )


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"{dashed}/>'


class SpaceTime:
    """Members as lines, time to the right, messages as slanted lines, a yellow bar while an event is held."""

    def __init__(self, rows: list[Row], since_ms: float, until_ms: float) -> None:
        self.rows = [row for row in rows if since_ms <= row.t_ns / 1e6 <= until_ms]
        self.since, self.until = since_ms, until_ms
        self.lanes = sorted({row.member for row in rows})

    def x(self, t_ns: float) -> float:
        return LEFT + 10 + (t_ns / 1e6 - self.since) / (self.until - self.since) * (W - LEFT - 44)

    def y(self, member: str) -> float:
        return TOP + LANE * (self.lanes.index(member) + 0.5)

    def draw(self, title: str, step_ms: float, notes: list[tuple[float, str, str]]) -> str:
        """`notes`: (ms, member, words)."""
        height = TOP + LANE * len(self.lanes) + 10
        body = []
        t = self.since
        while t <= self.until:
            body += [line(self.x(t * 1e6), TOP - 4, self.x(t * 1e6), height - 8, RULE, "2 3")]
            body += [text(self.x(t * 1e6), 16, f"{t - self.since:g} ms", SOFT, "middle")]
            t += step_ms
        for lane in self.lanes:
            body += [line(LEFT, self.y(lane), W - 12, self.y(lane), SOFT), text(10, self.y(lane) + 4, lane[:-2])]
        body += self._steps()
        body += [text(self.x(ms * 1e6) + 7, self.y(member) - 7, words, SOFT) for ms, member, words in notes]
        return picture(W, height, title, body)

    def _steps(self) -> list[str]:
        marks, held, arrived = [], [], {}
        for row in self.rows:
            here, y = self.x(row.t_ns), self.y(row.member)
            if row.kind == "receive" and row.peer in self.lanes:
                recovered = row.reason == "recovered"
                colour = PURPLE if recovered else BLUE
                held.append(line(self.x(row.t_ns - LATENCY_NS), self.y(row.peer), here, y, colour))
                arrived[row.member, row.event] = row.t_ns
            elif row.kind == "recover" and (row.reason or "").startswith("ask"):
                for peer in (row.peer or "").split():
                    held.append(line(here, y, self.x(row.t_ns + LATENCY_NS), self.y(peer), PURPLE, "3 3"))
            elif row.kind == "publish":
                marks.append(f'<circle cx="{here:.1f}" cy="{y:.1f}" r="6" fill="{INK}"/>')
            elif row.kind == "deliver" and row.member != row.origin:
                since = arrived.get((row.member, row.event), row.t_ns)
                if since < row.t_ns:
                    x, width = self.x(since), here - self.x(since)
                    held.append(f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="{width:.1f}" height="10" fill="{AMBER}"/>')
                marks.append(f'<circle cx="{here:.1f}" cy="{y:.1f}" r="4" fill="{BLUE}"/>')
        return held + marks


def gossip() -> str:
    """One event, ten members."""
    rows = rows_of(GOSSIP)
    return SpaceTime(rows, 4980, 5200).draw("One event spreads", 50, [(5000, "n0#1", "publishes")])


def hold() -> str:
    """A question that is late, an answer that is not."""
    notes = [
        (5500, "n0#1", "question"),
        (5605, "n1#1", "answer"),
        (5645, "n2#1", "held: its clock knows of the question"),
    ]
    return SpaceTime(rows_of(HOLD), 5480, 5920).draw("Held, asked for, delivered in order", 50, notes)


def tickets(scenario: str) -> str:
    """Who held which ticket when."""
    rows = rows_of(scenario)
    facts = gather(rows, title="", about="")
    svg = charts.ring(facts.tenures, facts.seconds, [mark for mark in facts.marks if mark.fault])
    colours = ["#3b7dd8", "#d9822b", "#2a9d6f", "#b04fb5", "#8a7f2c", "#c2484d", "#4a8fa3", "#6b6fc9"]
    style = "".join(f".owner{i}{{fill:{colour}}}" for i, colour in enumerate(colours)) + (
        f".tick{{fill:{SOFT};font-size:12px}}.owner{{fill:#fff;font-size:12px}}.waits{{opacity:.4}}"
        f".lost{{fill:{RED};font-size:18px;font-weight:700}}.event{{stroke:{RED};opacity:.45}}"
    )
    head, _, rest = svg.partition(">")
    head = head.replace(
        "<svg", '<svg xmlns="http://www.w3.org/2000/svg" font-family="system-ui, sans-serif" width="640"'
    )
    return f'{head}><style>{style}</style><rect width="100%" height="100%" rx="8" fill="#fff"/>{rest}\n'


def clocks() -> str:
    """Two keys of eight entries each: how two others' events can stand in for a missing one."""
    stamps = [
        ("a's event", {1: BLUE, 4: BLUE}, "a has keys 1 and 4"),
        ("b's event", {1: "#2a9d6f", 6: "#2a9d6f"}, "b has keys 1 and 6"),
        ("c's event", {4: "#d9822b", 7: "#d9822b"}, "c has keys 4 and 7"),
        ("an answer to a's", {1: BLUE, 4: BLUE, 2: PURPLE, 5: PURPLE}, "needs entries 1 and 4"),
        (
            "d, with b's and c's",
            {1: "#2a9d6f", 6: "#2a9d6f", 4: "#d9822b", 7: "#d9822b"},
            "1 and 4 are there: not held",
        ),
    ]
    body = [text(172 + 34 * i, 18, str(i), SOFT, "middle") for i in range(8)]
    for n, (name, filled, words) in enumerate(stamps):
        y = 28 + 34 * n + (10 if n == 4 else 0)
        body.append(text(14, y + 17, name))
        body += [
            f'<rect x="{157 + 34 * i}" y="{y}" width="30" height="26" rx="4" fill="{filled.get(i, "#eef0f2")}"/>'
            for i in range(8)
        ]
        body.append(text(440, y + 17, words, SOFT))
    return picture(W, 214, "Two keys of eight entries", body)


PICTURES = {
    "gossip": gossip,
    "hold": hold,
    "ring": lambda: tickets(RING),
    "clocks": clocks,
}


def main(where: Path) -> None:
    """All of them."""
    for name, draw in PICTURES.items():
        (where / f"{name}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
