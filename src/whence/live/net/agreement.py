"""What all members of a cluster have to have in common, compared before a member joins.

Rules of this file:

1. A question to a contact carries the asker's settings, its answer those of the contact. Both sides compare.
2. A difference in `DECISIVE` means that the two cannot work together: the joiner gets a UsageError, the other logs it.
   Any other difference is logged by both: the cluster works, but not as it was planned.
3. A peer that sends no settings is of an earlier version: nothing is compared.
"""

from __future__ import annotations

from collections.abc import Mapping

from whence.core.config import Config

DECISIVE = ("tickets", "transport", "mechanism", "view", "mode", "ring")
"""Settings without which two members cannot work together."""


def settings_of(config: Config, transport: str) -> dict[str, str]:
    """The settings that have to be the same at all members, by the names under which they are given."""
    ring, cast = config.ring, config.cast
    found: dict[str, object] = {
        "tickets": config.tickets,
        "transport": transport,
        "mechanism": config.ordering.kind,
        "view": cast.view,
        "mode": cast.mode,
        "round_ns": cast.round,
        "fanout": cast.fanout,
        "ring": ring.protocol,
        "ring_k": ring.k,
        "ring_round_ns": ring.round_ns,
        "delta_ns": ring.delta_ns,
    }
    return {name: str(value) for name, value in found.items()}


def differences(mine: Mapping[str, str], theirs: Mapping[str, str], there: str) -> tuple[str, bool]:
    """Each setting that differs, with both values, and whether one of them is decisive; an empty text: none."""
    names = [name for name in mine if theirs and theirs.get(name, mine[name]) != mine[name]]
    said = "; ".join(f"{name} is {mine[name]} here and {theirs[name]} at {there}" for name in names)
    return said, any(name in DECISIVE for name in names)
