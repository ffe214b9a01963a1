"""What the papers name and do not measure: where it is here, or why it is out."""

from __future__ import annotations

NAMED: tuple[tuple[str, str, str], ...] = (
    (
        "total order for the objects that want it",
        "CCC05 and TR05, future work",
        "Delivery in total order is out. It needs consensus for every event and stops while a quorum is away. What "
        "objects need of it is in: replicas order concurrent operations by stamps, the same everywhere and after what "
        "precedes them, so registers, counters and documents converge ([objects](./objects.md)).",
    ),
    (
        "object ownership and caching",
        "CCC05 and TR05, future work",
        "Ownership: a ticket is the right to publish in a cluster, so a region of objects that needs few writers is a "
        "cluster with few tickets. Ownership of single objects is out: it is total order for each object. Caching is "
        "out: every member has all objects of its clusters.",
    ),
    (
        "bounded version vectors",
        "SURVEY section 3.3",
        "Out. They bound counters by synchronising replicas pairwise. Here entries restart with every incarnation and "
        "are packed, so their size follows the events of one owner, not of all time.",
    ),
    (
        "one entry for each group",
        "SURVEY section 3.3",
        "In: a clock has one entry for each ticket, whoever owns it (CCC11); (N, R, K) clocks share entries between "
        "processes. Both are rows of [Table 1](./results/survey.md).",
    ),
    (
        "hierarchies of groups",
        "SURVEY section 3.4",
        "In: chains and trees of clusters over [bridges](./survey.md), and of subgroups in "
        "`whence paper survey/convoy` and a row of [Table 1](./results/survey.md). Cycles are refused.",
    ),
    (
        "interconnection of causal and total order",
        "SURVEY section 3.4",
        "Out, as total order is. Bridges join in `reliable` or `causal` order.",
    ),
    (
        "uniform delivery, view synchrony",
        "SURVEY section 2",
        "In the experiments only (`whence.lab.paper.survey.reliable`, the change of a view in Table 1). A user cannot "
        "choose them: they need an agreed view, and everybody stops when it changes. `publish(..., copies=k)` "
        "([live](./live.md)), and `copies` of a [client](./survey.md), replace uniform delivery where publishing must "
        "survive the death of a member.",
    ),
    (
        "automatic replacement of an interconnection server",
        "SURVEY section 3.4",
        "Out. Two bridges between the same clusters are a cycle, and the second is refused. A bridge that is started "
        "again with its directory, there or elsewhere, goes on exactly where it stopped; starting it is the work of a "
        "process supervisor.",
    ),
    (
        "synchronous channels instead of history",
        "SURVEY section 3.1",
        "Out: a sender that waits for every receiver needs a round trip for each event.",
    ),
    ("open groups", "SURVEY section 3.4", "In: clients publish through a member's [door](./survey.md)."),
    (
        "Byzantine processes",
        "CCC11 section 4.2 excludes them",
        "Out for the ring: its safety assumes honest coordinators. [SECURITY](../SECURITY.md) says what signatures and "
        "roles stop.",
    ),
    (
        "figures that explain and claim nothing",
        "CCC11 Figures 1 to 3, SURVEY Fig. 1",
        "Not measured. The exclusion that CCC11 Figure 3 draws is run and drawn by `whence paper ccc11/ring`.",
    ),
)
"""What, where it is named, and what became of it."""
