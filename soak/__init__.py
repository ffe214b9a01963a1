"""Soaks of live clusters: processes are killed and partitioned under load, and their traces are judged.

`python -m soak.kill`, `python -m soak.partition`, `python -m soak.editing`; `--help` says what each does.
"""
