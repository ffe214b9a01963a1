"""The asyncio runtime: real members over real sockets. Protocol decisions are all in `core`.

`node` drives one member; `host` is one endpoint of a process and carries the packets of all its clusters; `transport`
is the seam to what moves bytes (`tcp`, `memory`).
"""
