"""CCC11 section 4: who owns which ticket."""

from __future__ import annotations

from whence.lab.paper.claims.declare import SECOND, claim, was
from whence.lab.paper.claims.model import Statement

RING, AVAILABILITY = "ccc11/ring", "ccc11/availability"

_OURS_BASIC = claim(
    "basic-ours",
    "Algorithm 1 with rules 1 to 6 (`lab/paper/ccc11/basic.py`): tickets with two owners or two coordinators, "
    "random schedules",
    date=SECOND,
    at_most=0,
)
_OURS = claim(
    "ours",
    "the same schedule under our rules: owners of the ticket at a time",
    date=SECOND,
    at_most=1,
)

CORRECTNESS = (
    Statement(
        place="CCC11 Lemma 4.1",
        says="If no two processes own the same ticket, the coordinated sets are disjoint and cover all tickets.",
        experiment=RING,
        claims=(
            claim(
                "lemma-4.1", "sets of owners with an overlap or a hole, of all up to 10 tickets", date=SECOND, at_most=0
            ),
        ),
    ),
    Statement(
        place="CCC11 Algorithm 1, Lemma 4.2, Theorem 4.1",
        says="Without failures, joins and leaves never give two processes a common ticket.",
        experiment=RING,
        claims=(
            claim(
                "basic-published",
                "Algorithm 1 as printed: tickets with two owners or two coordinators, shortest schedule found",
                date=SECOND,
                at_most=0,
            ),
        ),
        corrected=(_OURS_BASIC,),
        correction="A coordinator waits for ACKSUCC before it serves the next request (docs/ring.md, rules 1 to 6).",
    ),
    Statement(
        place="CCC11 Lemma 4.3",
        says="Without failures the fault-tolerant algorithm does what the basic one does: nobody is excluded.",
        experiment=RING,
        claims=(
            claim(
                "lemma-4.3-published",
                "Algorithms 2 to 4 as printed, no failures, one join: coordinators that give up their ticket",
                date=SECOND,
                at_most=0,
            ),
        ),
        corrected=(
            claim(
                "lemma-4.3-ours",
                "our ring, no failures, the same join: coordinators that lose their ticket, and exclusions",
                date=SECOND,
                at_most=0,
            ),
        ),
        correction="A newcomer is on probation until its neighbours have vouched for it (rule 10).",
    ),
    Statement(
        place="CCC11 Lemma 4.4, Corollary 4.1",
        says="Whoever is excluded gets too few ALIVE messages and is out when the temporary coordinator is done.",
        experiment=RING,
        claims=(
            claim(
                "corollary-4.1",
                "one cut link: rounds for which the excluded process keeps its ticket beyond the corollary's bound",
                date=SECOND,
                at_most=0,
            ),
        ),
        corrected=(
            claim(
                "corollary-4.1-ours",
                "the same schedule under our rules: owners in the excluded range when the excluder may grant again",
                date=SECOND,
                at_most=0,
            ),
        ),
        correction=(
            "An exclusion needs a quorum of every list sent since the last good status, and leases are dated (rules 9, "
            "11, 13, 14)."
        ),
    ),
    Statement(
        place="CCC11 Theorem 4.2",
        says="A ticket never has two owners.",
        experiment=RING,
        claims=(
            claim(
                "published",
                "Algorithms 2 to 4 as printed, one cut link: owners of one ticket at a time",
                date=SECOND,
                at_most=1,
            ),
        ),
        corrected=(_OURS,),
        correction="Rules 7 to 19 of docs/ring.md.",
    ),
)

SECTION_4_4 = (
    Statement(
        place="CCC11 section 4.4, message overhead",
        says="In each round a process sends at most 2k + 1 messages.",
        experiment=AVAILABILITY,
        claims=(
            claim(
                "overhead",
                "messages of our ring that a coordinator sends in a round, less 2k + 1 (no crashes)",
                date=SECOND,
                at_most=0,
                before=(
                    was(
                        "a coordinator sends at most 2k + 1 ALIVE messages a round",
                        "overhead-alive",
                        "counted one of four kinds of messages",
                        at_most=0,
                    ),
                ),
            ),
            claim(
                "overhead-algorithm-2",
                "messages of Algorithm 2 as printed that a coordinator sends in a round, less 2k + 1 (no crashes)",
                date=SECOND,
                at_most=0,
                before=(
                    was(
                        "2k + 1 ALIVE and one UPDATE, as Algorithm 2 prints it, less 2k + 1",
                        "overhead-algorithm-2",
                        "written by hand; now the published ring runs and its messages are counted",
                        date=SECOND,
                        at_most=0,
                    ),
                ),
            ),
        ),
        note="Algorithm 2 itself sends an UPDATE besides. Ours polls, answers polls, and sends UPDATE and its answer.",
    ),
    Statement(
        place="CCC11 section 4.4, message overhead; ours",
        says="The messages of a coordinator grow linearly with k, whatever the number of coordinators.",
        experiment=AVAILABILITY,
        claims=(
            claim(
                "overhead-ours",
                "messages of our ring that a coordinator sends in a round, less 3 (2k + 1)",
                date=SECOND,
                at_most=0,
            ),
        ),
    ),
    Statement(
        place="CCC11 section 4.4, availability",
        says="An attempt to get a ticket succeeds with high probability if p_f < (1 - alpha) / 2.",
        experiment=AVAILABILITY,
        claims=(claim("sentence", "joins that succeed, at every p_f below the limit", at_least=0.95),),
        corrected=(
            claim("model", "the same in the paper's own model, in which an exclusion always succeeds", above=0.999),
            claim(
                "where-quorums",
                "joins that succeed where the model of quorums says 0.98 or more",
                needs="the full size: five seeds of 60 crashes, not two of 25",
                at_least=0.95,
            ),
            claim(
                "served",
                "joins that succeed while there is a coordinator",
                needs="the full size: some 400 such joins",
                at_least=0.99,
            ),
        ),
        correction="The derivation leaves out quorums: k + 1 of 2k + 1 neighbours must live.",
    ),
    Statement(
        place="CCC11 section 4.4, availability; ours",
        says="What fails, fails for want of a quorum, not of tickets.",
        experiment=AVAILABILITY,
        claims=(
            claim("for-want", "failed joins for which there was a coordinator", at_most=0.1),
            claim(
                "first-lapse",
                "runs whose first lapsed lease had lost its quorum to crashes",
                at_least=1,
                before=(
                    was(
                        "the first lease to run out has lost its quorum (nine in ten, or more)",
                        "first-lapse-share",
                        "loosened after 75 of 80 had been seen, and taken back",
                        at_least=0.9,
                    ),
                ),
            ),
            claim("larger-k", "largest bearable share of the limit, from one k to the next larger", at_least=0),
            claim(
                "half-crash",
                "p_f at which half of a neighbourhood crashes before it is reclaimed, less the limit (alpha <= 0.5)",
                below=0,
            ),
        ),
    ),
    Statement(
        place="CCC11 section 4.4, availability; ours",
        says="The founder has no special role once the ring stands: it may crash like any other.",
        experiment=AVAILABILITY,
        claims=(
            claim(
                "founder",
                "joins that succeed while there is a coordinator, where the founder crashes like the others (k = 4)",
                date=SECOND,
                needs="the full size: some 75 such joins a point",
                at_least=0.95,
            ),
        ),
    ),
    Statement(
        place="CCC11 section 4.4",
        says="More than 2 p_f n of n processes fail in a round with a probability below (e/4)^(2 p_f n).",
        experiment=AVAILABILITY,
        claims=(claim("printed", "exact binomial probability by the printed bound", below=1),),
        corrected=(claim("derived", "exact binomial probability by (e/4)^(p_f n)", below=1),),
        correction="The Chernoff bound of Theorem 5.1 gives (e/4)^(p_f n); the 2 is one too many.",
    ),
)

STATEMENTS = (*CORRECTNESS, *SECTION_4_4)
