"""Picks the PrCast."""

from __future__ import annotations

import random

from whence.core.cast.config import CastConfig
from whence.core.cast.gossip import Dissemination, EttbGossip
from whence.core.cast.messages import Vet
from whence.core.cast.views import FullView, PartialView
from whence.core.clock import MemberId


def make(me: MemberId, config: CastConfig, rng: random.Random, vet: Vet | None = None) -> Dissemination:
    """The dissemination that the configuration asks for."""
    view = (FullView if config.view == "full" else PartialView)(me, config, rng)
    if config.mode == "tree":
        from whence.core.cast.tree import TreeCast  # lazily: it takes memory

        return TreeCast(me, config, view, rng, vet)
    return EttbGossip(me, config, view, rng, vet)
