"""Ports for processes that have to be told theirs before anybody listens there."""

from __future__ import annotations

import os
import random
import socket

FIRST, EACH = 10_000, 2_000
"""Below the ephemeral ports (32768 on Linux), so that nobody is given one between our check and its use. Each worker of
the tests has a range of its own."""

_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 11
_next = random.SystemRandom().randrange(EACH)


def free_ports(count: int) -> list[int]:
    """Free ports; none is repeated in this process before all of the range were used."""
    global _next
    found: list[int] = []
    for _ in range(EACH):
        port = FIRST + _worker * EACH + _next % EACH
        _next += 1
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports in {EACH}")
