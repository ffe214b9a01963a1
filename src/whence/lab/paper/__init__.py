"""The experiments of the papers. What they test is declared in `whence.lab.paper.claims`.

An experiment is a `frame.Study` in a module of its name: what to measure, what the claims are judged by, the picture.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from whence.errors import UsageError

if TYPE_CHECKING:
    from whence.lab.paper.frame import Study

EXPERIMENTS = {
    "ccc11/ring": "Theorems 4.1 and 4.2: the published ring gives a ticket two owners, ours does not",
    "ccc11/availability": "section 4.4: joins under crashes, reclaiming, messages of the ring",
    "ccc11/fig4": "latency, throughput, message size against members; 5, 25 and all coordinators (--live: on sockets)",
    "ccc11/fig5": "latency, lost events and recovery against the load; gossip, causal, R1, R4 (--live: on sockets)",
    "ccc11/reach": "do fanout 4 and 5 hops reach 250 members?",
    "ccc11/theorems": "Theorems 5.1 and 5.2, Lemmas 5.1 and 5.2, ageing: the bounds, the model and the protocol",
    "ccc11/editing": "an editing session as load",
    "ccc11/planner": "the planner's predictions at random settings, next to measurements",
    "pco17/algorithms": "Algorithms 1 to 5, Lemma 1 and Corollary 1: as printed and corrected",
    "pco17/fig3": "error rate against K, for N = 500, 1000, 1500, 2000",
    "pco17/fig4": "error rate against the interval between two messages of a process",
    "pco17/fig5": "error rate against N, each process sending as often as before",
    "pco17/fig6": "error rate against N, all together sending as often as before",
    "pco17/variance": "figures 3 to 6 with N(100, 20) as the paper writes it: a deviation of 4.47 ms",
    "pco17/alerts": "how often Algorithms 4 and 5 raise an alert, and what they miss",
    "pco17/churn": "error rate when processes leave and join",
    "pco17/headers": "bytes on every message and errors: (N, R, K), vector clocks, tickets",
    "survey/examples": "Ex1, Ex2, Ex3 and Fig. 7 replayed, value for value",
    "survey/table1": "Table 1 with numbers: control bytes, blocking, the cost of a membership change",
    "survey/groups": "subgroups joined by servers, and groups that share members: trees, circles, FIFO, entries",
    "survey/convoy": "the convoy effect of chained subgroups, and what removes it",
}
"""Name -> what it shows. The module of the same name below this package has it as `STUDY` (and, on sockets, `LIVE`)."""
SWEEPS = ("fig4", "fig5", "fig6", "churn")
ELSEWHERE = {f"pco17/{name}": f"sweeps:{name.upper()}" for name in SWEEPS}
"""Those that have no module of their own."""
LIVE = ("ccc11/fig4", "ccc11/fig5")
"""Those that also run on real sockets. The others count what only a simulator sees (every arrival, every crash, every
seed), or 10^8 deliveries."""


class Experiment:
    """An experiment by name. `title` is what to type after `whence paper`, with `--live` where that applies."""

    def __init__(self, name: str, live: bool = False) -> None:
        if name not in EXPERIMENTS:
            raise UsageError(f"no experiment {name!r}: there are {', '.join(EXPERIMENTS)}, and all")
        if live and name not in LIVE:
            raise UsageError(f"{name} needs the simulator; on real sockets there are {', '.join(LIVE)}")
        self.name, self.live = name, live
        self.title = f"{name} --live" if live else name

    @property
    def study(self) -> Study:
        """Needs numba and pyarrow; the list of experiments does not."""
        paper, _, name = self.name.partition("/")
        module, _, study = ELSEWHERE.get(self.name, f"{name}:{'LIVE' if self.live else 'STUDY'}").partition(":")
        found: Study = getattr(import_module(f"whence.lab.paper.{paper}.{module}"), study)
        return found
