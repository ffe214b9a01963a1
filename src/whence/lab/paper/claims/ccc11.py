"""CCC11 sections 5 and 6 (and CCC05, TR05): the two layers, their theorems and figures."""

from __future__ import annotations

from whence.lab.paper.claims.declare import SECOND, claim, was
from whence.lab.paper.claims.model import Claim, Statement

FIG4, FIG5, THEOREMS = "ccc11/fig4", "ccc11/fig5", "ccc11/theorems"
SEEDS = "more seeds; the interval is over them"


def _logarithmic(few: int) -> tuple[Claim, ...]:
    loose = was(
        f"{few} coordinators: a + b ln N explains latency as well as a line or better",
        f"log-{few}-mean",
        "0.02 worse than a line passed for 'as well'",
        at_least=-0.02,
    )
    return (
        claim(
            f"log-{few}",
            f"{few} coordinators: a + b ln N explains more of the latency than a line (difference of r2, by seed)",
            date=SECOND,
            before=(loose,),
            needs=SEEDS,
            above=0,
        ),
        claim(
            f"growth-{few}",
            f"{few} coordinators: latency grows by less than the square root of the members (exponent, by seed)",
            needs=SEEDS,
            below=0.5,
            above=0,
        ),
    )


def _constant(few: int) -> Claim:
    return claim(f"throughput-{few}", f"{few} coordinators: throughput, largest by smallest", needs=SEEDS, below=1.2)


def _smaller(few: int) -> Claim:
    return claim(
        f"size-{few}",
        f"{few} coordinators: message size at the most members by that at the fewest",
        needs=SEEDS,
        below=1,
    )


FIGURE_4 = (
    Statement(
        place="CCC11 section 6.2, Figure 4 (CCC05 Fig. 1)",
        says="With a constant number of coordinators latency grows logarithmically with the members.",
        experiment=FIG4,
        claims=(*_logarithmic(5), *_logarithmic(25)),
    ),
    Statement(
        place="CCC11 section 6.2, Figure 4",
        says="With a constant number of coordinators throughput stays constant.",
        experiment=FIG4,
        claims=(_constant(5), _constant(25)),
    ),
    Statement(
        place="CCC11 section 6.2, Figure 4",
        says="With a constant number of coordinators messages become slightly smaller as the group grows.",
        experiment=FIG4,
        claims=(_smaller(5), _smaller(25)),
    ),
    Statement(
        place="CCC11 section 6.2, Figure 4",
        says="With all members as coordinators messages grow, latency grows linearly and throughput falls.",
        experiment=FIG4,
        claims=(
            claim(
                "size-all", "message size from one number of members to the next (smallest ratio)", needs=SEEDS, above=1
            ),
            claim("latency-all", "latency at the most members by that at the fewest", date=SECOND, above=1),
            claim("line-all", "share of the latency that a line explains", above=0.95),
            claim(
                "line-not-log-all",
                "a line explains more of the latency than a logarithm (difference of r2)",
                needs="five sizes, as the paper has, or more than 125 members: at three sizes both explain 99 %",
                above=0,
            ),
            claim(
                "throughput-all",
                "throughput from one number of members to the next (largest ratio)",
                needs=SEEDS,
                below=1,
            ),
        ),
    ),
    Statement(
        place="abstracts of CCC05, TR05 and CCC11",
        says="The load on the system is even.",
        experiment=FIG4,
        claims=(
            claim(
                "even",
                "bytes that the busiest member sends, by the mean of all members",
                date=SECOND,
                needs="longer runs: the busiest of many members is partly chance",
                at_most=1.25,
            ),
        ),
    ),
    Statement(
        place="CCC11 section 6.2, method",
        says="Rounds are tuned so that about 0.2 % of the connections fail.",
        experiment=FIG4,
        claims=(
            claim("failed", "failed connections", at_most=0.002, paper="0.2 %"),
            claim("shortest", "the shortest round with as few failures, by the round that was used", at_least=1 / 1.02),
        ),
        note="Rounds are tuned on a grid, one per cent apart, in at most five tries.",
    ),
    Statement(
        place="CCC11 section 6.2 (CCC05 section 4, TR05 section 5)",
        says="Fanout 4 and 5 hops reach 250 processes with high probability.",
        experiment="ccc11/reach",
        claims=(
            claim(
                "reach-250",
                "events that reach all of 250 members by gossip alone, 4 and 5",
                date=SECOND,
                at_least=0.99,
            ),
        ),
        corrected=(
            claim(
                "reach-sized",
                "the same with the fanout and termination that `sizing.choose` gives for 250 members and 0.99",
                date=SECOND,
                needs="some 250 events; --quick has 40",
                at_least=0.98,
            ),
            claim(
                "cover-250",
                "members that an event reaches with 4 and 5, on average",
                date=SECOND,
                needs="more than two runs",
                at_least=0.95,
            ),
        ),
        correction="Choose fanout and termination by the exact chain (`whence plan`).",
    ),
)


def _faster(key: str, against: str, when: str, **more: str) -> Claim:
    return claim(
        key,
        f"latency at the highest load, in rounds: with recovery less without, {against} (paired by seed)",
        date=SECOND,
        when=when,
        needs="more seeds; differences are hundredths of a round",
        below=0,
        **more,  # type: ignore[arg-type]
    )


def _converges(variant: str) -> Claim:
    vacuous = was(
        f"{variant}: the success rate of recovery converges to the predicted one as load grows (0.05 at the end)",
        f"off-{variant}-mean",
        "its second half, 'no further off than the furthest', is true of any series",
        at_most=0.05,
    )
    return claim(
        f"off-{variant}",
        f"{variant}: success rate at the highest load less the predicted one",
        date=SECOND,
        before=(vacuous,),
        needs="about 100 attempts at the highest load",
        at_least=-0.05,
        at_most=0.05,
    )


FIGURE_5 = (
    Statement(
        place="CCC11 section 6.3, Figure 5(b) (CCC05 Fig. 2)",
        says="The causal layer greatly reduces lost (ordered) events, most at high load.",
        experiment=FIG5,
        claims=(
            claim("causal-halves", "lost with the causal layer by lost with gossip alone", at_most=0.5),
            claim(
                "most-at-high",
                "share of the events that the causal layer saves, highest load less lowest (paired by seed)",
                date=SECOND,
                above=0,
            ),
        ),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(b)",
        says="With recovery almost all events are delivered in order.",
        experiment=FIG5,
        claims=(claim("recovered", "lost with R1 and R4, at every load", below=0.01),),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(a)",
        says="Latency grows slowly with the load.",
        experiment=FIG5,
        claims=(claim("slow", "latency with R1, in rounds: highest load by lowest", below=1.5),),
        note=(
            "In ms it grows more, because rounds are tuned to the size of messages; the paper does not say whether its "
            "rounds were the same at all loads."
        ),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(a)",
        says="The causal layer and recovery add little to the latency of gossip.",
        experiment=FIG5,
        claims=(claim("overhead", "latency with R1 by latency of gossip alone, in rounds, below p = 0.3", below=1.5),),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(a)",
        says="At high load recovery even lowers latency.",
        experiment=FIG5,
        claims=(
            _faster("faster-uplink-R1", "R1", "uplink of 10 Mbit/s"),
            _faster("faster-uplink-R4", "R4", "uplink of 10 Mbit/s"),
            _faster("faster-free-R1", "R1", "no uplink limit"),
            _faster("faster-free-R4", "R4", "no uplink limit"),
            _faster("faster-patient-R1", "R1", "uplink; without recovery waits as long as with it"),
            _faster("faster-patient-R4", "R4", "uplink; without recovery waits as long as with it"),
        ),
        depends="how long a layer without recovery waits before it skips a gap",
        note=(
            "Ours skips a gap after time_to_terminate, when with recovery it sends its request. The paper does not say "
            "how long its layer waited. An earlier version of our page gave only the run with an uplink, whose means "
            "(2.52 and 2.49 rounds) lie within each other's error."
        ),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(c)",
        says="As the load grows, the success rate of recovery converges to the predicted one.",
        experiment=FIG5,
        claims=(_converges("R1"), _converges("R4")),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(c)",
        says="Recovery attempts increase with the load.",
        experiment=FIG5,
        claims=(
            claim("attempts", "requests at the highest load less requests at the lowest (paired by seed)", above=0),
        ),
    ),
    Statement(
        place="CCC11 section 6.3, Figure 5(c)",
        says="At low load the success rate of R4 is unexpectedly low.",
        experiment=FIG5,
        claims=(
            claim(
                "low-R4",
                "R4: success rate at the lowest load less that at the highest",
                date=SECOND,
                needs="attempts at the lowest load, where hardly anything is missing: far longer runs",
                below=0,
            ),
        ),
        note="The paper itself says that the number of attempts is very small there.",
    ),
)

SECTION_5 = (
    Statement(
        place="CCC11 Algorithm 5, Lemma 5.1 (TR05 Lemma 1)",
        says="Without failures and slow links every event is delivered everywhere, in causal order.",
        experiment=THEOREMS,
        claims=(claim("lemma-5.1", "events lost or delivered before their past", at_most=0),),
        note="Runs can refute a lemma, not prove it. The simulator's judge checks every delivery.",
    ),
    Statement(
        place="CCC11 Theorem 5.1 (TR05 Theorem 1)",
        says="A buffer of 2npT events overflows with a probability below (e/4)^(npT).",
        experiment=THEOREMS,
        claims=(
            claim("5.1-exact", "exact binomial probability by the bound, 25 settings", below=1),
            claim(
                "5.1-protocol",
                "R1 with a buffer of 2npT: success rate less what loss and the bound allow",
                above=-0.04,
            ),
            claim(
                "5.1-small",
                "success with a buffer of 2npT less that with the smallest buffer",
                above=0.1,
            ),
        ),
    ),
    Statement(
        place="CCC11 section 5.2",
        says="A recovery buffer that ages and forgets what is stable may do better than first in, first out.",
        experiment=THEOREMS,
        claims=(
            claim(
                "aging",
                "R1 with a buffer below npT: success with aging less success first in, first out (paired by seed)",
                date=SECOND,
                above=0,
            ),
        ),
    ),
    Statement(
        place="CCC11 Lemma 5.2 (TR05 Lemma 2)",
        says="Of 2np_f processes one lives with a probability above 1 - (e/4)^(np_f).",
        experiment=THEOREMS,
        claims=(claim("5.2-lemma", "logarithm of P[all failed] less that of the bound, 9 settings (exact)", below=0),),
    ),
    Statement(
        place="CCC11 Theorem 5.2 (TR05 Corollary 1)",
        says="Asking k >= 2np_f processes gets a reply with high probability.",
        experiment=THEOREMS,
        claims=(
            claim(
                "5.2-stated",
                "k = 2np_f random members, asked once, 10 % crashed and 10 % loss: success less 1 - (e/4)^(np_f)",
                date=SECOND,
                above=0,
                before=(
                    was(
                        "k >= 2np_f (at most 6 tried), and a member known to have the event, answer more than 0.95",
                        "5.2-known",
                        "tried k = 6 where the theorem asks for 8, and asked a known holder besides",
                        above=0.95,
                    ),
                ),
            ),
        ),
        note="The theorem counts processes that live. Ours also counts what it needs in practice: the event itself.",
    ),
    Statement(
        place="our planner, for Theorem 5.2",
        says=(
            "A request fails with probability (1 - a) (1 - a coverage)^k, a = (1-x)^2 (1-y), x the loss and y the "
            "share that crashed."
        ),
        experiment=THEOREMS,
        claims=(claim("5.2-planner", "success less the formula's, at every k", at_least=-0.06, at_most=0.06),),
    ),
    Statement(
        place="CCC11 section 5.2",
        says="Compared with asking the source, asking k processes needs up to k times as many recovery messages.",
        experiment=THEOREMS,
        claims=(
            claim(
                "k-times",
                "requests sent for each missing event, R4 as published by R1 as published",
                date=SECOND,
                at_most=4,
            ),
        ),
    ),
)

STATEMENTS = (*FIGURE_4, *FIGURE_5, *SECTION_5)
