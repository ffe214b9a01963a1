"""The asyncio runtime: real members over real sockets. Nothing here decides anything the core should.

`node` drives one member; `host` is one endpoint of a process and carries the packets of all its clusters; `transport`
is the seam to what moves bytes (`tcp`, `memory`).
"""
