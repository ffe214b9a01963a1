"""Fleets: processes that are started, fed, killed, cut off, stopped and measured, all in one way.

`whence up`, `whence demo`, the soaks, the live figures of the papers and the bench run on it.

| file | what |
|---|---|
| `process.py` | one supervised child process, and a group of them that never outlives its block |
| `channel.py` | the child's end: JSON lines in, JSON lines out |
| `task.py` | what a child with members is told |
| `member.py` | the program of a child: members of one cluster, with a load |
| `load.py` | the load: how many events are due, and the time of publishing in their payloads; pure |
| `plan.py` | what happens to a fleet, and when; pure |
| `fleet.py` | a cluster spread over processes: start, kill, cut, heal, wait, collect |
| `network.py` | cuts in the network itself, by namespaces |
"""
