"""CCC11 (and CCC05, TR05): who owns which ticket, the two layers, and loads beyond the paper."""

from __future__ import annotations

from whence.lab.paper.claims.model import read

STATEMENTS = read(
    """
== ccc11/ring
# CCC11 Lemma 4.1
"for p != q S_p and S_q are disjoint, and their union is {0, ..., n-1}"
given: no two processes own the same ticket
lemma-4.1 <= 0: sets of owners (up to 10 tickets, all of them) with an overlap or a hole
# CCC11 Theorem 4.1 (Lemma 4.2)
"the algorithm guarantees for any p, q in Core_C, unless p = q: S_p and S_q are disjoint; p and q maintain different
  tickets"
given: no failures; Core_C is never empty; a process performs as a coordinator only after ACKSUCC
basic-published <= 0: Algorithm 1 with its prose, random schedules: those in which a ticket has two owners
correction: A leaver still owns its ticket while ACKCLEAVE travels, and its predecessor grants it: rules 1 to 6 of
  docs/ring.md.
basic-ours <= 0: our ring, random joins and leaves: violations
# CCC11 4.1
"the number of subsequent NEWSUCC messages before a process can perform as a coordinator is bounded"
newsucc-chain <= 8: the longest chain, of 8 tickets
# CCC11 Lemma 4.3
"the membership scheme is equivalent to the membership protocol of Section 4"
given: no failures, no slow links; "processes always receive sufficiently many ALIVE messages"
lemma-4.3 <= 0: Algorithms 2 to 4 as printed, never short of ALIVE: schedules with two owners; with an exclusion
# ours: the premise of Lemma 4.3
Without failures processes do receive sufficiently many ALIVE messages.
premise <= 0: as printed, random joins without failures: schedules in which somebody gives up or excludes
correction: A newcomer's first check comes before any ALIVE; it is on probation until its neighbours vouch (rule 10).
premise-ours <= 0: our ring, no failures: tickets lost, and exclusions
# CCC11 Corollary 4.1 (Lemma 4.4)
"The ith successor of p in E_pq will fail the latest i rounds after p was acknowledged."
given: links may fail; a round more is allowed, as rounds begin at different times
corollary-4.1 <= 0: as printed, one cut link, random joins: schedules in which it is in for longer
correction: An exclusion needs a quorum of every list sent since the last good status; leases are dated (rules 9, 11,
  13, 14).
corollary-4.1-ours <= 0: our ring, links cut at random: violations
# CCC11 Theorem 4.2
"Algorithm 2 guarantees that two processes never have common tickets"
given: processes stop, links fail or are slow
published <= 0: as printed, one cut link, random joins: schedules in which a ticket has two owners
correction: Rules 7 to 19 of docs/ring.md.
ours <= 0: our ring, links cut at random: violations
outvoted > 0: exclusions in these runs with a quorum of one list that the successor may hold, not of another (rule 13)

== ccc11/availability
# CCC11 4.4, message overhead
"The overhead which is induced by the membership protocol corresponds to the number of sent ALIVE messages. In each
  round, a process sends and receives at most 2k + 1 messages."
overhead-alive <= 0: ALIVE messages of Algorithm 2 per coordinator and round - (2k + 1)
note: UPDATE is one more. Ours polls, answers polls, sends UPDATE and answers it.
# ours: message overhead
A coordinator of our ring sends at most 3 (2k + 1) messages a round, whatever the number of coordinators.
overhead-ours <= 0: messages - 3 (2k + 1)
# CCC11 4.4, reclaiming
"the time to reclaim tickets from a failing process is expected to take time less or equal to 1/alpha"
given: each coordinator maintains 1/alpha tickets on average
reclaim <= 0: Algorithms 2 to 4 as printed, equally distant owners: rounds from the crash - 1/alpha
reclaim-ours <= 0: our ring: the same
note: TempRounds is dist(p, q) - 1, and counts the tickets of p, too.
# CCC11 4.4, availability
"a process which attempts to acquire a ticket succeeds w.h.p. if p_f < 1/2 (1 - alpha)"
given: "(i) alpha remains constant and (ii) the exclusion algorithm needs 1/alpha rounds"
model > 0.999: joins that succeed in a model with these assumptions
# ours: availability without (i) and (ii)
The same in the protocol, where a ticket takes k + 1 vouching neighbours of 2k + 1.
sentence >= 0.95: joins that succeed, at every p_f below the limit
# ours: availability
While there is a coordinator, joins succeed.
served >= 0.99: joins that succeed while there is a coordinator
for-want <= 0.1: failed joins for which there was a coordinator
larger-k >= 0: largest bearable share of the limit, from one k to the next larger
half-crash < 0: p_f at which half of a neighbourhood crashes before it is reclaimed - the limit (alpha <= 0.5)
# ours: availability
The founder may crash like any other, once the ring stands.
founder >= 0.95: joins that succeed while there is a coordinator, founder crashing (k = 4)
needs: some 75 such joins a point
# CCC11 4.4
"The probability [of more than 2 p_f n faulty processes] is strictly smaller than (e/4)^(2 p_f n)."
printed < 1: exact binomial probability / printed bound
correction: The Chernoff bound of Theorem 5.1 gives (e/4)^(p_f n); the 2 is one too many.
derived < 1: exact binomial probability / (e/4)^(p_f n)

== ccc11/fig4
# CCC11 6.2, Figure 4 (CCC05 Fig. 1)
"the protocols with a fixed number of coordinators experience only a logarithmic increase in message delay"
given: 25 to 125 members, 6 events a round, rounds tuned to 0.2 % failed connections
log-5 > 0: 5 coordinators: r2 of a + b ln N - r2 of a line (latency, by seed)
log-25 > 0: 25 coordinators: r2 of a + b ln N - r2 of a line (latency, by seed)
unbounded-5 > 0: 5 coordinators: r2 of a + b ln N - r2 of a - b / N
unbounded-25 > 0: 25 coordinators: r2 of a + b ln N - r2 of a - b / N
growth-5 > 0 and < 0.5: 5 coordinators: exponent with which latency grows
growth-25 > 0 and < 0.5: 25 coordinators: exponent with which latency grows
needs: more seeds and larger groups; the interval is over seeds
# CCC11 6.2, Figure 4
"throughput remains constant" with a fixed number of coordinators.
throughput-5 < 1.2: 5 coordinators: largest / smallest throughput
throughput-25 < 1.2: 25 coordinators: largest / smallest throughput
needs: more seeds; the interval is over them
note: Nothing is lost, so this is 6 by the round: no second observation.
# CCC11 6.2, Figure 4
"message sizes even decreased slightly with growing group size" with a constant number of coordinators.
slightly-5 > 0.9: 5 coordinators: message size in the largest / smallest group
slightly-25 > 0.9: 25 coordinators: message size in the largest / smallest group
correction: They decrease by more than a third.
size-5 < 0.67: 5 coordinators: message size in the largest / smallest group
size-25 < 0.67: 25 coordinators: message size in the largest / smallest group
# CCC11 6.2, Figure 4
"for the full updater protocol messages grow larger [...] latency increases linearly and throughput decreases"
size-all > 1: message size / that in the next smaller group (smallest ratio)
latency-all > 1: latency in the largest / smallest group
line-all > 0.95: share of the latency that a line explains
line-not-log-all > 0: r2 of a line - r2 of a logarithm (latency)
throughput-all < 1: throughput / that in the next smaller group (largest ratio)
needs: more than 125 members, or more seeds
# CCC11 6.2
"The size of the history buffer was 40 events, which is high enough to prevent w.h.p. PrCast from delivering the same
  event twice."
given: 6 events a round
repeated < 0.001: second deliveries by gossip / deliveries
# abstracts of CCC05, TR05 and CCC11
"imposes an even load on the system"
even <= 1.25: bytes sent by the busiest member / by the mean member
needs: longer runs: the busiest of many members is partly chance
# CCC11 6.2, method
"tuned so that all experiments had approximately the same rate of TCP connection failures (namely 0.2%)"
failed <= 0.002: failed connections
shortest >= 0.9803921568627451: shortest round with as few failures / the round used

== ccc11/reach
# CCC11 6.2 (CCC05 section 4, TR05 section 5)
"the PrCast was configured to satisfy the goal of each event reaching 250 processes w.h.p. (fan-out 4, 5 hops)"
reach-250 >= 0.99: events that reach all of 250 members by gossip alone
cover-250 >= 0.95: members that an event reaches with 4 and 5, on average
# ours: reach
Sized by the exact chain (`whence plan`) gossip alone reaches 250.
reach-sized >= 0.98: events that reach all, sized for 0.99
needs: some 250 events in three runs; --quick has 40 in two

== ccc11/fig5
# CCC11 6.3, Figure 5(b) (CCC05 Fig. 2)
"the causality layer significantly reduces the amount of lost (ordered) events, in particular when the number of events
  is high"
given: 25 members, all coordinators, p up to 0.5; the youngest events first in a message
causal-halves <= 0.5: lost with the causal layer / with gossip alone
most-at-high > 0: share of events that the causal layer saves, highest load - lowest (paired)
# CCC11 6.3, Figure 5(b)
"With the recovery schemes almost all events could be delivered in optimistic causal order."
recovered < 0.01: lost with R1 and R4, at every load
# CCC11 6.3, Figure 5(b), as printed
"With the recovery schemes almost all events could be delivered in optimistic causal order."
given: Algorithm 5 as printed: each missing event is asked for once, the buffer is first in, first out; the highest load
printed-recovered < 0.01: lost with R1 and R4
printed-success >= -0.05 and <= 0.05: success rate - predicted
# CCC11 6.3, Figure 5(a)
"With increasing load latency grows only slowly"
slow < 1.5: in rounds: latency with R1, highest load / lowest
slow-ms < 1.5: in ms: latency with R1, highest load / lowest
depends: the unit: our rounds are tuned to the size of messages, and grow
# CCC11 6.3, Figure 5(a)
"The causality layer adds a small overhead [...] The recovery schemes do not add much overhead with respect to latency"
overhead < 1.25: latency in rounds, causal layer / gossip alone, at every load
overhead-asking < 1.1: latency in rounds, R1 and R4 / causal layer, at every load
needs: more seeds
# CCC11 6.3, Figure 5(a)
"At higher loads the recovery schemes even improve latency"
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
note: Ours skips a gap when with recovery it sends its request. The paper does not say how long its layer waited.
# CCC11 6.3, Figure 5(c)
"as load and the number of recovery attempts increase the success rate converges towards the predicted outcome"
off-R1 >= -0.05 and <= 0.05: R1: success rate - predicted, at every load with ten attempts
off-R4 >= -0.05 and <= 0.05: R4: success rate - predicted, at every load with ten attempts
closer-R1 <= 0: R1: distance from the predicted rate, highest load - lowest
closer-R4 <= 0: R4: distance from the predicted rate, highest load - lowest
needs: far longer runs: below p = 0.3 hardly anything is missing
# CCC11 6.3, Figure 5(c)
"The number of recovery attempts increase as the load in the system increases"
attempts > 0: requests, highest load - lowest (paired)
# CCC11 6.3, Figure 5(c)
"The unexpectedly low success rate during low load for the R4 method"
low-R4 < 0: R4: success rate, lowest load - highest
needs: attempts at the lowest load, where hardly anything is missing: far longer runs
# ours: the history at high load
40 keys also suffice at 12.5 events a round.
repeated < 0.001: second deliveries by gossip / deliveries

== ccc11/theorems
# CCC11 Lemma 5.1 (TR05 Lemma 1)
"guarantees causal delivery of all events disseminated to a cluster"
given: "neither processes nor links are slow or fail"
lemma-5.1 <= 0: events lost or delivered before their past
# CCC11 Theorem 5.1 (TR05 Theorem 1)
"guarantee the availability of e in the recovery buffer with probability strictly greater than 1 - (e/4)^(npT) if the
  size of the buffer is greater than or equal to 2npT"
given: each of n processes admits an event in a round with probability p, independently
5.1-exact < 1: exact binomial probability / bound, 25 settings
5.1-protocol > -0.04: R1, buffer of 2npT: success rate - what loss and the bound allow
5.1-small > 0.1: success with a buffer of 2npT - with the smallest
# TR05 section 4, general form
"a buffer of 2 mu T guarantees availability with a probability strictly greater than 1 - (e/4)^(mu T)"
given: process i admits an event with probability p_i; mu is their sum
5.1-general < 1: exact probability / bound, 9 settings
# CCC11 5.2
"an aging scheme may improve performance from the reliability point of view"
given: instead of first in, first out; a buffer below npT, as at 2npT both hold everything
aging > 0: R1: success with ageing alone - first in, first out (paired)
needs: more seeds
# CCC11 Lemma 5.2 (TR05 Lemma 2)
"with probability strictly greater than 1 - (e/4)^(np_f), there will be at least one nonfailed process in the subset"
given: processes fail independently with probability p_f; a subset of 2np_f
5.2-lemma < 0: log P[all failed] - log of the bound, 9 settings (exact)
# CCC11 Theorem 5.2 (TR05 Corollary 1)
"will get a reply with high probability if it requests recovery from k processes"
given: p_f <= k/(2n)
5.2-stated > 0: k = 2np_f random members, 10 % crashed, 10 % loss: success - (1 - (e/4)^(np_f))
note: The theorem counts processes that live. Ours also counts the event that is asked for.
# our planner, for Theorem 5.2
A request fails with probability (1 - a) (1 - a coverage)^k, a = (1-x)^2 (1-y), x the loss and y the share that
  crashed.
5.2-planner >= -0.06 and <= 0.06: success - the formula's, at every k
# CCC11 5.2
"Compared with recovery by asking the originator of an event, this method may need k times more recovery messages."
k-times <= 4: requests sent for each missing event, R4 / R1 (both as published)

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
