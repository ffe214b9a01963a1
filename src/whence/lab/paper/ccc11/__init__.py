"""CCC05 and CCC11: figures 4 and 5, the theorems, availability, the planner."""
