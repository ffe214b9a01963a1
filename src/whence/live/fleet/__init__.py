"""Fleets of supervised child processes, used by `whence up`, `whence demo`, the soaks, live figures and the bench.

| file | what |
|---|---|
| `process.py` | one supervised child process, and a group of them |
| `channel.py` | the child's end: JSON lines in, JSON lines out |
| `task.py` | the task of a child with members, its load, and plans of kills, partitions and restarts; pure |
| `member.py` | the program of a child: members of one cluster, with a load |
| `fleet.py` | a cluster spread over processes: start, kill, cut, heal, wait, collect |
"""
