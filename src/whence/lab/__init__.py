"""Simulate, size, reproduce.

`sim` runs the members of `core` in virtual time on a network with every fault. `scale` is the array engine for (N, R,
K) clocks at 10^9 deliveries. `plan.py` goes from a workload to settings and predictions. `paper` has one module for
each figure, table and theorem of the papers, the claims they must show, and the protocols that only experiments run.
"""
