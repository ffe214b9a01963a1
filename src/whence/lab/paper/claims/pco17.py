"""PCO17: probabilistic causal ordering."""

from __future__ import annotations

from whence.lab.paper.claims.model import read

STATEMENTS = read(
    """
== pco17/algorithms
# PCO17 Algorithms 1 and 2, Figures 1 and 2
The worked example: m' waits for m; and with m1 and m2 before it, m' is delivered too early.
figure-1 <= 0: values that differ from the example
figure-2 <= 0: values that differ from the example of an error
note: The example's f(p_k) = {3, 4} does not fit R = 4; entries run from 0 to R - 1.
# PCO17 Lemma 1, Corollary 1
Every message is delivered in the end, and one that is causally ready is never delayed.
lemma-1 <= 0: messages never delivered, random runs
corollary-1 <= 0: messages delayed though everything before them was delivered
# PCO17 Algorithm 3
It maps each number from 0 to C(R, K) - 1 to a subset of K entries of its own.
algorithm-3-printed >= 1: share of all subsets that the printed algorithm yields
correction: C_k^R must be the binomial of the remaining r and k, and set_id is reduced by it.
algorithm-3 >= 1: the same, corrected
# PCO17 4.2.1, Algorithm 5
With a list L of unlimited length Algorithm 5 never misses an error.
algorithm-5-printed <= 0: overtaken messages without an alert, as printed (V > m.V)
correction: The comparison is `>=`: an entry that has just been reached is covered, too.
algorithm-5 <= 0: the same with V >= m.V

== pco17/alerts
# PCO17 4.2, Algorithm 4; conclusion
Without an alert of Algorithm 4 there is no error.
unalerted <= 0: overtaken messages without an alert of Algorithm 4
# PCO17 4.2
Algorithm 4 greatly over-estimates the number of errors.
over-estimates >= 10: alerts of Algorithm 4 for each overtaken message
needs: the full size
# PCO17 4.2.1, Algorithm 5
Algorithm 5 raises fewer false alerts; a list as long as the propagation time is enough.
fewer-false <= 0.5: false alerts, Algorithm 5 / Algorithm 4
two-times <= 0: messages missed with L of two propagation times
longer >= 0: missed share, shorter list - longer
needs: more deliveries with L of one and two propagation times

== pco17/fig3
# PCO17 5.3
The error probability is at most P_nc (1 - (1 - 1/R)^(KX))^K.
bound <= 1: error rate / bound with the measured P_nc, 40 points
# PCO17 5.3 and 5.4.2
It is least at K = ln 2 R / X, about 3.5 in the experiment.
optimum >= 3.4 and <= 3.6: the K at which the printed bound is least, R = 100, X = 20 (computed)
# PCO17 5.4.2, Figure 3
The error rate is least at K = 4, for 500, 1000, 1500 and 2000 processes.
least-500 >= 0.9: N = 500: error rate at every other K / at K = 4 (same messages)
least-1000 >= 0.9: N = 1000: error rate at every other K / at K = 4 (same messages)
least-1500 >= 0.9: N = 1500: error rate at every other K / at K = 4 (same messages)
least-2000 >= 0.9: N = 2000: error rate at every other K / at K = 4 (same messages)
correction: The minimum is flat: K = 3 and 5 have about the errors of K = 4.
flat-500 >= 0.75 and <= 1.33: N = 500: error rates at K = 3 and 5 / at K = 4
flat-1000 >= 0.75 and <= 1.33: N = 1000: error rates at K = 3 and 5 / at K = 4
flat-1500 >= 0.75 and <= 1.33: N = 1500: error rates at K = 3 and 5 / at K = 4
flat-2000 >= 0.75 and <= 1.33: N = 2000: error rates at K = 3 and 5 / at K = 4
needs: more messages: the interval of K = 3 / K = 4 must end above 0.9
note: Read as: K = 4 is the least or within a tenth of it. Whether K = 3 is less at N = 500 is open.
loosened: least and eps: first, less at K = 4 than at any other K. The bound itself differs by 0.4 % between K = 3 and
  4: that would take 10^12 deliveries.
# PCO17 5.4.1, Figure 3
The same by the paper's own estimates eps_min and eps_max.
eps-500 >= 0.9: N = 500: estimates at every other K / at K = 4
eps-1000 >= 0.9: N = 1000: estimates at every other K / at K = 4
eps-1500 >= 0.9: N = 1500: estimates at every other K / at K = 4
eps-2000 >= 0.9: N = 2000: estimates at every other K / at K = 4
needs: more messages: the interval of K = 3 / K = 4 must end above 0.9

== pco17/fig4
# PCO17 5.4.3, Figure 4
The error rate is stable around lambda = 5000 ms.
stable > 0.5 and < 2: error rate / that at 5000 ms
needs: more deliveries: both ratios are near the threshold
# PCO17 5.4.3, Figure 4
It increases quickly when lambda is below 3000 ms.
fast >= 5: error rate at 2000 / at 5000 ms
steep > 0: rise from 3000 to 2000 ms - rise from 10000 to 3000 ms

== pco17/fig5
# PCO17 5.4.3, Figure 5
It increases quickly as soon as N is above 1000, each process sending as often as before.
fast >= 5: error rate at N = 2000 / at 1000
bend > 0: rise from N = 1000 to 1500 - rise from 500 to 1000
loosened: bend: first, as far as N = 3000; replaced when that was not decided.

== pco17/fig6
# PCO17 5.4.3, Figure 6
With a constant message rate it remains constant when N grows beyond 1000.
constant >= 0.75 and <= 1.25: error rate / that at N = 1000
needs: more deliveries at large N
# PCO17 5.4.3, Figure 6
With a constant message rate it increases when N shrinks.
higher > 1: error rate at N = 100 / at 1000
steady > 1: error rate / that of the next larger N, from 50 to 1000

== pco17/churn
# PCO17 abstract: changing membership; not measured there
Joins and leaves do not raise the error rate.
churn <= 1.25: error rate / that without churn, up to a tenth of the processes replaced every second
unalerted <= 0: overtaken messages without an alert of Algorithm 4
needs: about ten times the deliveries, half an hour of processor time

== pco17/loss
# PCO17 section 3 assumes reliable broadcast; ours
Copies that are lost and sent again raise the error rate; bound and alerts still hold.
doubles >= 2: error rate at 1 % loss / without loss
grows > 1: error rate / that at the next smaller loss
bound <= 1: error rate / bound with the measured P_nc
unalerted <= 0: overtaken messages without an alert of Algorithm 4
needs: about five times the deliveries at 10 % loss, where the bound is at 0.98

== pco17/latencies
# PCO17 5.3 between cities; ours
K = ln 2 R / X is right with recorded latencies, too.
nearest-K >= 0.9: error rate at every other K / at the K nearest to ln 2 R / X (same messages)
bound <= 1: error rate / bound with the measured P_nc
needs: far more deliveries: K = 3 and 4 are at 0.89 to 0.9 of K = 5
loosened: nearest-K: for a time, the best K is within 1 of ln 2 R / X.
# PCO17 5.4 between cities; ours
Recorded latencies give no more errors than the paper's network.
no-more <= 1: error rate between cities / with N(100, 20), K = 4
correction: Errors grow, but by no more than overtaking (replaced after the first wording had failed).
overtaken > 1: messages that overtake their past, between cities / N(100, 20)
by-overtaken <= 1: errors for each overtaken message, between cities / N(100, 20)

== pco17/headers
# PCO17 section 1: vector clocks cost too much; ours
An (N, 100, 4) stamp is small whatever N is; vector clocks and tickets make no error on the messages.
no-error <= 0: errors of vector clocks and tickets
errors > 0: errors of (N, 100, 4) on the same messages
any-N >= 0.9 and <= 1.1: bytes of (N, 100, 4) at N = 3000 / at 300
of-vector-1000 <= 0.25: bytes of (N, 100, 4) / of a vector clock, N = 1000
of-vector-3000 <= 0.1: bytes of (N, 100, 4) / of a vector clock, N = 3000
loosened: of-vector-1000: first <= 0.2.
# CCC11 and PCO17 side by side; ours
With 5 publishers tickets are smaller than (N, 100, 4); with 25 they have fewer counts but more bytes.
tickets-5 < 1: bytes of 5 tickets / of (N, 100, 4)
tickets-25-counts < 1: bytes of 25 tickets without incarnations / of (N, 100, 4)
tickets-25-bytes > 1: bytes of 25 tickets / of (N, 100, 4)
few-publishers >= 1: error rate of (N, 100, 4) with 25 publishers / with 1000
"""
)
