"""CCC11 (and CCC05, TR05): who owns which ticket, the two layers, and loads beyond the paper."""

from __future__ import annotations

from whence.lab.paper.claims.model import read

STATEMENTS = read(
    """
== ccc11/ring
# CCC11 Lemma 4.1
If no two processes own the same ticket, the coordinated sets are disjoint and cover all tickets.
lemma-4.1 <= 0: sets of owners (up to 10 tickets, all of them) with an overlap or a hole
# CCC11 Algorithm 1, Lemma 4.2, Theorem 4.1
Without failures, joins and leaves never give two processes a common ticket.
basic-published <= 0: as printed: tickets with two owners or coordinators, shortest schedule
correction: A coordinator waits for ACKSUCC before it serves the next request (docs/ring.md, rules 1 to 6).
basic-ours <= 0: our ring, which has these rules: the same, random schedules
# CCC11 Lemma 4.3
Without failures the fault-tolerant algorithm excludes nobody.
lemma-4.3-published <= 0: Algorithms 2 to 4 as printed, no failures, one join: tickets given up
correction: A newcomer is on probation until its neighbours have vouched for it (rule 10).
lemma-4.3-ours <= 0: our ring, the same join: tickets lost, and exclusions
# CCC11 Lemma 4.4, Corollary 4.1
An excluded process gets too few ALIVE messages and is out before its tickets are granted again.
corollary-4.1 <= 0: one cut link: rounds for which it keeps its ticket beyond that
correction: An exclusion needs a quorum of every list sent since the last good status; leases are dated (rules 9, 11,
  13, 14).
corollary-4.1-ours <= 0: under our rules: owners in the excluded range when it is granted again
# CCC11 Theorem 4.2
A ticket never has two owners.
published <= 1: Algorithms 2 to 4 as printed, one cut link: owners of one ticket at a time
correction: Rules 7 to 19 of docs/ring.md.
ours <= 1: the same schedule under our rules

== ccc11/availability
# CCC11 4.4, message overhead
In each round a process sends at most 2k + 1 messages.
overhead <= 0: messages of our ring per coordinator and round - (2k + 1), no crashes
overhead-algorithm-2 <= 0: the same of Algorithm 2 as printed
note: Algorithm 2 also sends UPDATE. Ours polls, answers polls, and sends UPDATE and its answer.
# CCC11 4.4, message overhead; ours
The messages of a coordinator grow linearly with k, whatever the number of coordinators.
overhead-ours <= 0: messages of our ring - 3 (2k + 1)
# CCC11 4.4, availability
An attempt to get a ticket succeeds with high probability if p_f < (1 - alpha) / 2.
sentence >= 0.95: joins that succeed, at every p_f below the limit
correction: The derivation leaves out quorums: k + 1 of 2k + 1 neighbours must live.
model > 0.999: the same in the paper's model, in which an exclusion always succeeds
where-quorums >= 0.95: joins that succeed where the model of quorums says 0.98 or more
served >= 0.99: joins that succeed while there is a coordinator
needs: the full size: five seeds of 60 crashes and some 400 joins, not two of 25
# CCC11 4.4, availability; ours
Joins fail for want of a quorum, not of tickets.
for-want <= 0.1: failed joins for which there was a coordinator
first-lapse >= 1: runs whose first lapsed lease had lost its quorum to crashes
larger-k >= 0: largest bearable share of the limit, from one k to the next larger
half-crash < 0: p_f at which half of a neighbourhood crashes before it is reclaimed - the limit (alpha <= 0.5)
loosened: first-lapse: >= 0.9 after 75 of 80 had been seen; taken back.
# CCC11 4.4, availability; ours
The founder may crash like any other, once the ring stands.
founder >= 0.95: joins that succeed while there is a coordinator, founder crashing (k = 4)
needs: the full size: some 75 such joins a point
# CCC11 4.4
More than 2 p_f n of n processes fail in a round with a probability below (e/4)^(2 p_f n).
printed < 1: exact binomial probability / printed bound
correction: The Chernoff bound of Theorem 5.1 gives (e/4)^(p_f n); the 2 is one too many.
derived < 1: exact binomial probability / (e/4)^(p_f n)

== ccc11/fig4
# CCC11 6.2, Figure 4 (CCC05 Fig. 1)
With a constant number of coordinators latency grows logarithmically with the members.
log-5 > 0: 5 coordinators: r2 of a + b ln N - r2 of a line (latency, by seed)
log-25 > 0: 25 coordinators: r2 of a + b ln N - r2 of a line (latency, by seed)
growth-5 > 0 and < 0.5: 5 coordinators: exponent with which latency grows
growth-25 > 0 and < 0.5: 25 coordinators: exponent with which latency grows
needs: more seeds; the interval is over them
# CCC11 6.2, Figure 4
With a constant number of coordinators throughput stays constant.
throughput-5 < 1.2: 5 coordinators: largest / smallest throughput
throughput-25 < 1.2: 25 coordinators: largest / smallest throughput
needs: more seeds; the interval is over them
# CCC11 6.2, Figure 4
With a constant number of coordinators messages become slightly smaller as the group grows.
size-5 < 1: 5 coordinators: message size in the largest / smallest group
size-25 < 1: 25 coordinators: message size in the largest / smallest group
needs: more seeds; the interval is over them
# CCC11 6.2, Figure 4
With all members as coordinators messages grow, latency grows linearly and throughput falls.
size-all > 1: message size / that in the next smaller group (smallest ratio)
latency-all > 1: latency in the largest / smallest group
line-all > 0.95: share of the latency that a line explains
line-not-log-all > 0: r2 of a line - r2 of a logarithm (latency)
throughput-all < 1: throughput / that in the next smaller group (largest ratio)
needs: five sizes, as the paper has, or more than 125 members: at three sizes both explain 99 %
# abstracts of CCC05, TR05 and CCC11
The load on the system is even.
even <= 1.25: bytes sent by the busiest member / by the mean member
needs: longer runs: the busiest of many members is partly chance
# CCC11 6.2, method
Rounds are tuned so that about 0.2 % of the connections fail.
failed <= 0.002: failed connections
shortest >= 0.9803921568627451: shortest round with as few failures / the round used

== ccc11/reach
# CCC11 6.2 (CCC05 section 4, TR05 section 5)
Fanout 4 and 5 hops reach 250 processes with high probability.
reach-250 >= 0.99: events that reach all of 250 members by gossip alone
correction: Choose fanout and termination by the exact chain (`whence plan`).
reach-sized >= 0.98: the same, sized for 0.99
cover-250 >= 0.95: members that an event reaches with 4 and 5, on average
needs: some 250 events in three runs; --quick has 40 in two

== ccc11/fig5
# CCC11 6.3, Figure 5(b) (CCC05 Fig. 2)
The causal layer greatly reduces lost (ordered) events, most at high load.
causal-halves <= 0.5: lost with the causal layer / with gossip alone
most-at-high > 0: share of events that the causal layer saves, highest load - lowest (paired)
# CCC11 6.3, Figure 5(b)
With recovery almost all events are delivered in order.
recovered < 0.01: lost with R1 and R4, at every load
# CCC11 6.3, Figure 5(a)
Latency grows slowly with the load.
slow < 1.5: latency with R1, in rounds: highest load / lowest
note: In ms it grows more: our rounds are tuned to the size of messages.
# CCC11 6.3, Figure 5(a)
The causal layer and recovery add little to the latency of gossip.
overhead < 1.5: latency in rounds, R1 / gossip alone, below p = 0.3
# CCC11 6.3, Figure 5(a)
At high load recovery even lowers latency.
faster-uplink-R1 < 0: R1, uplink of 10 Mbit/s: latency - without recovery (rounds, highest load, paired)
faster-uplink-R4 < 0: R4, uplink of 10 Mbit/s: latency - without recovery (rounds, highest load, paired)
faster-free-R1 < 0: R1, no uplink limit: latency - without recovery (rounds, highest load, paired)
faster-free-R4 < 0: R4, no uplink limit: latency - without recovery (rounds, highest load, paired)
faster-patient-R1 < 0: R1, uplink; without recovery waits as long: latency - without recovery (rounds, highest load,
  paired)
faster-patient-R4 < 0: R4, uplink; without recovery waits as long: latency - without recovery (rounds, highest load,
  paired)
depends: how long a layer without recovery waits before it skips a gap
needs: more seeds; differences are hundredths of a round
note: Ours skips a gap after time_to_terminate, when with recovery it sends its request. The paper does not say how
  long its layer waited.
# CCC11 6.3, Figure 5(c)
As the load grows, the success rate of recovery converges to the predicted one.
off-R1 >= -0.05 and <= 0.05: R1: success rate at the highest load - predicted
off-R4 >= -0.05 and <= 0.05: R4: success rate at the highest load - predicted
needs: about 100 attempts at the highest load
# CCC11 6.3, Figure 5(c)
Recovery attempts increase with the load.
attempts > 0: requests, highest load - lowest (paired)
# CCC11 6.3, Figure 5(c)
At low load the success rate of R4 is unexpectedly low.
low-R4 < 0: R4: success rate, lowest load - highest
needs: attempts at the lowest load, where hardly anything is missing: far longer runs

== ccc11/theorems
# CCC11 Algorithm 5, Lemma 5.1 (TR05 Lemma 1)
Without failures and slow links every event is delivered everywhere, in causal order.
lemma-5.1 <= 0: events lost or delivered before their past
# CCC11 Theorem 5.1 (TR05 Theorem 1)
A buffer of 2npT events overflows with a probability below (e/4)^(npT).
5.1-exact < 1: exact binomial probability / bound, 25 settings
5.1-protocol > -0.04: R1, buffer of 2npT: success rate - what loss and the bound allow
5.1-small > 0.1: success with a buffer of 2npT - with the smallest
# CCC11 5.2
A recovery buffer that ages and forgets what is stable may do better than first in, first out.
aging > 0: R1, buffer below npT: success with aging - first in, first out (paired)
# CCC11 Lemma 5.2 (TR05 Lemma 2)
Of 2np_f processes one lives with a probability above 1 - (e/4)^(np_f).
5.2-lemma < 0: log P[all failed] - log of the bound, 9 settings (exact)
# CCC11 Theorem 5.2 (TR05 Corollary 1)
Asking k >= 2np_f processes gets a reply with high probability.
5.2-stated > 0: k = 2np_f random members, 10 % crashed, 10 % loss: success - (1 - (e/4)^(np_f))
note: The theorem counts processes that live. Ours also counts the event that is asked for.
# our planner, for Theorem 5.2
A request fails with probability (1 - a) (1 - a coverage)^k, a = (1-x)^2 (1-y), x the loss and y the share that
  crashed.
5.2-planner >= -0.06 and <= 0.06: success - the formula's, at every k
# CCC11 5.2
Asking k processes needs up to k times as many recovery messages as asking the source.
k-times <= 4: requests sent for each missing event, R4 / R1 (both as published)

== ccc11/availability --live
# CCC11 4.4, on sockets
Live as simulated, joins succeed while every coordinator has its quorum, and fail once it is lost.
live-served >= 0.8: joins that succeed within 8 ring rounds, one coordinator killed every 8 rounds
live-soon < 4: mean rounds until such a join has its ticket
live-storm <= 0.2: joins that succeed after 4 of 6 were killed at once (from 8 rounds later)
needs: five runs on idle cores

== ccc11/fig4 --live
# CCC11 Figure 4, on sockets
Live as simulated, messages and latency grow with the members where all publish; throughput falls.
live-size > 0.33: growth of the bytes a round, all coordinators - few
live-latency > 0.33: growth of the latency over a 10 Mbit/s uplink, all coordinators - few
live-throughput < 0: throughput over it, largest / smallest group, all coordinators - few
live-lost < 0.01: events lost or out of order, live and simulated
needs: five runs on idle cores
# CCC11 Figure 4, on sockets
The simulator predicts live latency.
live-rounds >= 0.7 and <= 1.3: latency in rounds, live / simulated
needs: five runs on idle cores
note: On a busy machine rounds begin late; `overslept_rounds` in the data says by how much.

== ccc11/fig5 --live
# CCC11 Figure 5, on sockets
Live as simulated, gossip alone loses more with more load, the causal layer half, recovery nothing.
live-gossip > 0: lost with gossip alone, highest load - lowest
live-halves <= 0.5: lost with the causal layer / with gossip alone, highest load
live-recovered < 0.01: lost with R1 and R4
needs: five runs on idle cores
# CCC11 Figure 5, on sockets
The simulator predicts live latency and loss.
live-rounds >= 0.7 and <= 1.3: latency in rounds, live / simulated
live-lost >= 0.6666666666666666 and <= 1.3333333333333333: lost with gossip alone at the highest load, live /
  simulated
needs: five runs on idle cores

== ccc11/world
# CCC11 Figure 5, between cities
Figure 5's statements hold between cities all over the world (recorded latencies).
world-halves <= 0.5: lost with the causal layer / with gossip alone
world-recovered < 0.01: lost with R1 and R4
world-overhead < 1.5: latency, R1 / gossip alone
# CCC11 6.3, between cities
At high load recovery even lowers latency.
world-faster-R1 < 0: R1: latency - without recovery (rounds, highest load, paired)
world-faster-R4 < 0: R4: latency - without recovery (rounds, highest load, paired)
needs: about 30 seeds instead of six; differences are hundredths of a round

== ccc11/editing
# ours: an editing session as load
With the papers' recovery everybody ends with the recorded text, up to 5 % loss.
to-the-end >= 1: R1 and R4: share of the session written, up to 5 % loss
in-order < 0.01: R1 and R4: events lost, at every loss
text-R1 >= 1: R1: members with the recorded text, up to 5 % loss
text-R4 >= 1: R4: members with the recorded text, up to 5 % loss
correction: Documents need order `reliable`: R1 asks one member once, and request or reply may be lost.
text-reliable >= 1: `reliable`: members with the recorded text, at every loss
written-reliable >= 1: `reliable`: share of the session written, at every loss
loosened: in-order: first, recovery loses no more than none; authors who lack an event stop and lose less.
# ours: an editing session as load
Without recovery the session stops, even where no message is lost.
stops < 1: share of the session written without recovery

== ccc11/planner
# ours: the planner (docs/planner.md)
Predictions at random settings are within their stated errors (the ends of the error are -1 and 1).
reach_gossip >= -1 and <= 1: probability that gossip alone reaches all
reach >= -1 and <= 1: probability that an event reaches all
latency_p50_ms >= -1 and <= 1: median latency
latency_p99_ms >= -1 and <= 1: 99th percentile of latency
bytes_per_s >= -1 and <= 1: bytes a second
loosened: latency: first within one hop of the mean time that recovery takes, also where most wait; 4 of 20 p99 and one
  p50 were outside.
needs: more events; reach of nearly 1 and bytes of four seeds have intervals wider than the stated errors
"""
)
