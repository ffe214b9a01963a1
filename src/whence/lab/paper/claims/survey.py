"""SURVEY: mechanisms of causal multicast, its examples and Table 1."""

from __future__ import annotations

from whence.lab.paper.claims.model import read

STATEMENTS = read(
    """
== survey/examples
# SURVEY section 2, Fig. 2; SURVEY 3.2, Fig. 5 (Ex1)
Vector clocks deliver Ex1 with the printed clocks, and m2 || m4, m3 || m4.
ex1-clocks <= 0: vectors and clocks that differ from the paper's
ex1-relations <= 0: relations that differ
ex1-order <= 0: orders of delivery that differ
# SURVEY 3.1, Figs. 3 and 4 (Ex2)
The first generation carries the printed sequences and delivers m1, m2, m3, m4 without waiting.
ex2 <= 0: sequences and deliveries that differ
# SURVEY 3.1, Psync
Identifiers of precedent messages give the same graph.
identifiers <= 0: graph and deliveries that differ
# SURVEY 3.3, Fig. 6 (Ex3)
Compaction for unicast (Singhal and Kshemkalyani) has the five printed states.
ex3 <= 0: states of p3 that differ
# SURVEY 3.3, Fig. 7
Compaction for multicast sends the printed entries.
fig7 <= 0: entries and deliveries that differ

== survey/table1
# SURVEY section 2, P1 to P4
"P1 (Validity) ... P2 (Agreement) ... P3 (Integrity) ... P4 (Causal order)": everything is delivered, once, in order.
given: channels lose nothing while sender and receiver live
promises <= 0: runs that break what their order promises, by the simulator's judge
everything <= 0: other mechanisms: events that a member never delivers, without failures
everything-timed <= 0: physical time, deadlines: events that a member never delivers, without failures
hostile <= 0: deliveries before their past in the hostile world (where `causal` may skip)
depends: the mechanism: with physical time and deadlines what comes too late is dropped
# SURVEY Table 1, first generation
First generation: "non-blck", "big msg".
non-blocking <= 0: share of deliveries that wait (CBCAST 87)
big > 3: control bytes / those of vector clocks
# SURVEY Table 1, vector and compact clocks
Vector clocks, compaction: "blocking".
block > 0: share of deliveries that wait
needs: the full size, five seeds
# SURVEY 3.2, Table 1
"vector clock size still depends linearly on the amount of processes"
linear > 0.5: growth of the control bytes / of the processes (entries are packed: less than 1)
# SURVEY 3.3, Table 1
"the processes that multicast more frequently will be able to compact a lot the vector clocks"
given: not all group members attain the same sending rates
compact < 0.5: as the survey counts, b bits an entry: bytes, compacted / plain vector
compact-encoded < 0.5: as ours are encoded: bytes, compacted / plain vector
depends: what a plain vector costs: ours does not send entries of those who never multicast
# SURVEY 3.4, Table 1
"the size of such causal history is always kept small and does not depend on the overall size of the complete system"
interconnected < 1: control bytes in subgroups / of one vector of all processes
interconnected-any < 2: control bytes in subgroups / those with the fewest processes
# SURVEY 3.2
"each time the system membership varies [...] communication is temporarily stopped"
view-stops >= 20 and <= 150: pause of everybody in a change of the view (ms); a message takes 10 to 50
view-square > 3: messages for the change, with twice as many processes / with as many
needs: the full size, five seeds
# ours, for SURVEY 3.2
In our stack nobody stops for a joiner, and it costs less than half the messages of a view.
join-stops <= 0: longest time in which a member may not publish meanwhile (ms)
join-messages < 0.5: messages for a joiner / for a change of the view

== survey/groups
# SURVEY 3.4
"[They] require only reliable FIFO communication [...], and the avoidance of interconnection cycles"
given: causal order in each subgroup; cycles matter "when more than two subgroups are managed"
tree <= 0: a tree and FIFO links: events read twice or before their cause
circle > 0.5: a circle: runs with such events
not-fifo > 0.5: a tree, links that reorder: runs with events before their cause
# SURVEY 3.4
"that only requires a single message to be communicated for each multicast message"
one-message >= 1 and <= 1: messages over a link for each event
# SURVEY 3.3, Mostefaoui and Raynal
"It was able to manage multicasts to multiple groups using a single vector clock, with as many entries as groups."
given: groups that number their events in one row, here by one ticket
shared <= 0: groups in a circle: events before their cause
shared-entries <= 1: entries of an event / groups
shared-without > 0: without entries of other groups: runs with events before their cause
loosened: shared-without: first > 0.5; that one run breaks shows the need.
# SURVEY 3.3
"this technique is convenient when k < n b / (m + b)", k "the proportion of clock entries that need to be propagated"
pays-share <= 0: k a proportion: settings in which the formula errs
correction: k is the number of entries: a proportion is below the bound even if all are sent.
pays-number <= 0: k a number: settings in which the formula errs

== survey/convoy
# SURVEY 3.4, convoy effect
In a chain of subgroups with vector clocks traffic comes in bursts, and later from group to group.
convoy > 3: latency in the last subgroup / in the first
bursts > 1.5: messages that a server delivers at the same moment (largest mean)
needs: the full size, five seeds
# ours, for the convoy effect
Messages that carry what precedes them remove the convoy, at a price that grows with the subgroups.
less < 0: latency in the last subgroup, first generation (Fig. 3) - vector clocks
removed < 3: latency in the last subgroup, in delays for each subgroup crossed (CBCAST 87)
no-bursts < 1.3: messages that a server delivers at the same moment (CBCAST 87)
price > 1: control bytes in subgroups of 6 / of 3
"""
)
