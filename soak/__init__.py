"""Soaks of live clusters: real processes, killed, cut off and slowed, judged by the causal oracle afterwards.

`python -m soak.kill`, `python -m soak.partition`, `python -m soak.editing`; `--help` says what each does.
"""
