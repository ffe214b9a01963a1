"""Bounds and times of TCP, each with its trade-off."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class TcpSettings:
    """Bounds and times of TCP; seconds and bytes."""

    connect_timeout: float = 3.0
    """For a connection, TLS included."""
    backoff: float = 0.05
    """Before the second attempt to reach a peer; doubled with each failure. Meanwhile what is for it is dropped."""
    max_backoff: float = 2.0
    high_water: int = 128 << 10
    """Bytes waiting for a peer above which publishers wait for it. Higher: more throughput over long lines, more
    latency behind a slow peer."""
    patience: float = 1.0
    """How long publishers wait for a peer that does not read; after that it misses what does not fit."""
    datagram_bound: int = 4 << 20
    """Bytes waiting for a peer above which datagram-class packets for it are dropped."""
    stream_bound: int = 32 << 20
    """Bytes waiting for a peer above which its connection is given up: several snapshots fit."""
    dial_bound: int = 1 << 20
    """Bytes kept for a peer that is being dialled."""
    urgent_bytes: int = 64 << 10
    """Reliable packets up to this size take the urgent lane. All messages of a ring are far smaller."""
    kernel_buffer: int = 64 << 10
    """Bytes that the kernel may hold for each direction of a connection. Higher: more throughput over long lines.
    Lower: publishers notice a slow peer sooner, and what they publish is younger when it arrives. 0: the kernel
    decides."""
    greeting_timeout: float = 5.0
    """For the first packet of an accepted connection."""
    record_timeout: float = 20.0
    """For the rest of a packet that has begun."""
    stall_timeout: float = 20.0
    """For a peer that does not read at all, or does not acknowledge: then it is gone."""
    idle_timeout: float = 300.0
    """For a connection that nothing was sent on."""
    greeting_bytes: int = 2048
    """The largest first packet."""
    max_strangers: int = 128
    """Accepted connections that have not said who they are, a TLS handshake under way included."""
    max_per_address: int = 64
    """Of those, from one IP address; its oldest makes room."""
    max_accepted: int = 4096
    """Accepted connections; never more than a third of the file descriptors that this process may have."""
    max_peers: int = 4096
    """Lanes to peers, likewise."""
    sweep: float = 1.0
    """Between two looks at what has timed out."""
