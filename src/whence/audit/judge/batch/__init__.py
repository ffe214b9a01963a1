"""The judge over arrays: a whole run at once, compiled by numba. Its verdicts equal those of `judge.causality`."""
