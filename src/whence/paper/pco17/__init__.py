"""A Probabilistic Causal Message Ordering Mechanism (PaCT'17): its figures, and what it does not have."""

COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
BOUND = r"bound $P_{nc}\,(1-(1-1/R)^{KX})^K$"
PAPER = {"processes": 1000, "entries": 100, "keys": 4, "rate": 200.0, "sample": False}
"""The setting of PCO17 section 5.4.3; X = 20 messages in flight."""
