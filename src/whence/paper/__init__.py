"""The experiments of the papers, each with the claims it must show.

An experiment is a module with `run(context) -> Outcome`; here is the list of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from whence.errors import UsageError

if TYPE_CHECKING:
    from whence.paper.frame import Context, Outcome

EXPERIMENTS = {
    "ccc11/fig4": "latency, throughput, message size against members; 5, 25 and all coordinators (--live: on sockets)",
    "ccc11/fig5": "latency, lost events and recovery against the load; gossip, causal, R1, R4 (--live: on sockets)",
    "ccc11/theorems": "Theorems 5.1 and 5.2, Lemmas 5.1 and 5.2: the bounds, the model and the protocol",
    "ccc11/availability": "section 4.4: joins succeed while p_f < (1 - alpha) / 2; messages of the ring",
    "ccc11/world": "Figure 5's variants over recorded latencies",
    "ccc11/editing": "an editing session as load",
    "ccc11/planner": "the planner's predictions at random settings, next to measurements",
    "pco17/fig3": "error rate against K, for N = 500, 1000, 1500, 2000",
    "pco17/fig4": "error rate against the interval between two messages of a process",
    "pco17/fig5": "error rate against N, each process sending as often as before",
    "pco17/fig6": "error rate against N, all together sending as often as before",
    "pco17/alerts": "how often Algorithms 4 and 5 raise an alert, and what they miss",
    "pco17/latencies": "error rate against K with recorded latencies",
    "pco17/loss": "error rate when copies are lost and sent again",
    "pco17/churn": "error rate when processes leave and join",
    "pco17/headers": "bytes on every message and errors: (N, R, K), vector clocks, tickets",
    "survey/examples": "Ex1, Ex2, Ex3 and Fig. 7 replayed, value for value",
    "survey/table1": "Table 1 with numbers: control bytes, blocking, the cost of a membership change",
    "survey/convoy": "the convoy effect of chained subgroups, and what removes it",
}
"""Name -> what it shows; the module of the same name below this package does it."""


LIVE = ("ccc11/fig4", "ccc11/fig5")
"""Those that also run on real sockets. The others count what only a simulator sees (every arrival, every crash, every
seed), or 10^8 deliveries."""


def experiment(name: str) -> Callable[[Context], Outcome]:
    """The function that does an experiment."""
    if name not in EXPERIMENTS:
        raise UsageError(f"no experiment {name!r}: there are {', '.join(EXPERIMENTS)}")
    run: Callable[[Context], Outcome] = import_module(f"whence.paper.{name.replace('/', '.')}").run

    def checked(context: Context) -> Outcome:
        if context.live and name not in LIVE:
            raise UsageError(f"{name} needs the simulator; on real sockets there are {' and '.join(LIVE)}")
        return run(context)

    return checked
