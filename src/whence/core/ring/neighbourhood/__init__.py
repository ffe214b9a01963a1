"""The parts of the neighbourhood protocol (CCC11 Algorithms 2-4): the neighbours of a coordinator vouch for it, and
only they can exclude it. `core/ring/tolerant.py` composes them."""
