"""SURVEY: mechanisms of causal multicast, its examples and Table 1."""

from __future__ import annotations

from whence.lab.paper.claims.declare import FIRST, SECOND, claim, was
from whence.lab.paper.claims.model import Claim, Statement

EXAMPLES, TABLE, CONVOY = "survey/examples", "survey/table1", "survey/convoy"
FULL = "the full size: five seeds, not two or three"


def _as_printed(key: str, what: str) -> Claim:
    return claim(key, f"{what}: values that differ from the paper's", at_most=0)


WORKED = (
    Statement(
        place="SURVEY section 2, Fig. 2; SURVEY section 3.2, Fig. 5 (Ex1)",
        says="Vector clocks deliver Ex1 with the printed clocks, and m2 || m4, m3 || m4.",
        experiment=EXAMPLES,
        claims=(
            _as_printed("ex1-clocks", "vectors and clocks"),
            _as_printed("ex1-relations", "relations"),
            _as_printed("ex1-order", "orders of delivery"),
        ),
        note="p4 gets m2 before m1 (Fig. 2, step 5), though step 3 of the text has all processes deliver m1 at once.",
    ),
    Statement(
        place="SURVEY section 3.1, Figs. 3 and 4 (Ex2)",
        says="The first generation carries the printed sequences and delivers m1, m2, m3, m4 without waiting.",
        experiment=EXAMPLES,
        claims=(_as_printed("ex2", "sequences and deliveries"),),
    ),
    Statement(
        place="SURVEY section 3.1, Psync",
        says="Identifiers of precedent messages give the same graph.",
        experiment=EXAMPLES,
        claims=(_as_printed("identifiers", "graph and deliveries"),),
    ),
    Statement(
        place="SURVEY section 3.3, Fig. 6 (Ex3)",
        says="Compaction for unicast (Singhal and Kshemkalyani) has the five printed states.",
        experiment=EXAMPLES,
        claims=(_as_printed("ex3", "states of p3"),),
    ),
    Statement(
        place="SURVEY section 3.3, Fig. 7",
        says="Compaction for multicast sends the printed entries.",
        experiment=EXAMPLES,
        claims=(_as_printed("fig7", "entries and deliveries"),),
    ),
)

TABLE_1 = (
    Statement(
        place="SURVEY section 2, P1 to P4",
        says="Every mechanism delivers everything, once, in causal order.",
        experiment=TABLE,
        claims=(
            claim("promises", "runs that break what their order promises, by the simulator's judge", at_most=0),
            claim("hostile", "deliveries before their past in the hostile world", at_most=0),
        ),
    ),
    Statement(
        place="SURVEY Table 1, first generation",
        says="Non-blocking, with big messages.",
        experiment=TABLE,
        claims=(
            claim("non-blocking", "share of deliveries that wait (CBCAST 87)", at_most=0),
            claim("big", "control bytes by those of vector clocks", above=3),
        ),
    ),
    Statement(
        place="SURVEY Table 1, vector and compact clocks",
        says="Delivery may block.",
        experiment=TABLE,
        claims=(claim("block", "share of deliveries that wait", needs=FULL, above=0),),
    ),
    Statement(
        place="SURVEY section 3.2, Table 1",
        says="The size of a vector clock grows linearly with the processes.",
        experiment=TABLE,
        claims=(
            claim(
                "linear",
                "growth of the control bytes by that of the processes (entries are packed, so less than 1)",
                above=0.5,
                paper="800 bytes for 200 processes with 32-bit entries",
            ),
        ),
    ),
    Statement(
        place="SURVEY section 3.3, Table 1",
        says="Compaction makes messages small where few processes multicast.",
        experiment=TABLE,
        claims=(claim("compact", "bytes as the survey counts them, compacted by plain vector", below=0.5),),
    ),
    Statement(
        place="SURVEY section 3.4, Table 1",
        says="Interconnected subgroups keep messages small whatever the number of processes.",
        experiment=TABLE,
        claims=(
            claim("interconnected", "control bytes in subgroups by those of one vector of all processes", below=1),
            claim("interconnected-any", "control bytes in subgroups, by those with the fewest processes", below=2),
        ),
    ),
    Statement(
        place="SURVEY section 3.2",
        says="A change of the membership stops communication until the clocks are readjusted.",
        experiment=TABLE,
        claims=(
            claim(
                "view-stops",
                "pause of everybody in a change of the view (ms); a message takes 10 to 50",
                needs=FULL,
                at_least=20,
                at_most=150,
            ),
            claim("view-square", "messages for the change, from one number of processes to twice as many", above=3),
        ),
    ),
    Statement(
        place="SURVEY section 3.2; ours",
        says="In our stack nobody stops for a joiner, and it costs less than half the messages of a view.",
        experiment=TABLE,
        claims=(
            claim(
                "join-stops",
                "longest time in which a member may not publish while one joins and one crashes (ms)",
                date=SECOND,
                at_most=0,
                before=(
                    was(
                        "nobody stops for a joiner",
                        "join-stops-by-hand",
                        "the pause was written by hand as 0",
                        date=FIRST,
                        at_most=0,
                    ),
                ),
            ),
            claim("join-messages", "messages for a joiner by those for a change of the view", below=0.5),
        ),
    ),
)

CHAIN = (
    Statement(
        place="SURVEY section 3.4, convoy effect",
        says="In a chain of subgroups with vector clocks traffic comes in bursts, and later from group to group.",
        experiment=CONVOY,
        claims=(
            claim("convoy", "latency in the last subgroup by that in the first", needs=FULL, above=3),
            claim("bursts", "messages that a server delivers at the same moment (largest mean)", above=1.5),
        ),
    ),
    Statement(
        place="SURVEY section 3.4, convoy effect; ours",
        says="Messages that carry what precedes them remove the convoy, at a price that grows with the subgroups.",
        experiment=CONVOY,
        claims=(
            claim("less", "latency in the last subgroup, first generation (Fig. 3) less vector clocks", below=0),
            claim("removed", "latency in the last subgroup, in delays for each subgroup crossed (CBCAST 87)", below=3),
            claim("no-bursts", "messages that a server delivers at the same moment (CBCAST 87)", below=1.3),
            claim("price", "control bytes in subgroups of 6 by those in subgroups of 3", above=1),
        ),
    ),
)

STATEMENTS = (*WORKED, *TABLE_1, *CHAIN)
