"""Which scenario finds which mistake."""

from __future__ import annotations

FOUND_BY = {
    "no-merge": ("triangle", "causal: n3 delivered answer before question"),
    "no-order": ("triangle", "causal: n3 delivered answer before question"),
    "early": ("triangle", "causal: n3 delivered answer before question"),
    "reuse-id": ("crash-replay", "integrity: n1 published after-1 in its life 2 under id n1-1, which n1 had used"),
    "amnesia": ("crash-replay", "integrity: n1 delivered before-1 2 times in its 2 lives"),
    "no-dedupe": ("duplicate", "integrity: n1 delivered twice-2 "),
    "no-repair": ("tail-loss", "reliable: n2 did not deliver last"),
    "empty-joiner": (
        "late-join",
        "reliable: n3 did not deliver ready-n1, which n1 had published, in time, and delivered",
    ),
    "stuck-joiner": ("late-join", "reliable: n3 did not deliver ready-n1"),
    "forgetful-merge": ("partition-heal", "reliable: n3 did not deliver larger-1"),
}
"""Mistake -> the scenario that finds it, and what it says."""
