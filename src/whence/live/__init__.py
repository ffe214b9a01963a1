"""The runtime, and what applications use: members of `core` on sockets, disks and clocks.

`api.py` has `create`, `join` and `Cluster`; `publisher.py` and `events.py` are how an application publishes and reads.
`net` carries out what members ask for: TCP and UDP, TLS, the journal, metrics. It makes no protocol decision. On top
of it: replicated `objects`, `bridge`s between clusters and for clients that are not members, and `fleet`, which starts,
kills and collects processes.
"""
