"""The council: a few voters, which renew themselves, decide who may own a ticket (docs/ring.md, rules C0 to C12)."""

from whence.core.ring.council.ring import CouncilRing

__all__ = ["CouncilRing"]
