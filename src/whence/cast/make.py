"""Picks the PrCast."""

from __future__ import annotations

import random

from whence.cast.base import Vet
from whence.cast.config import CastConfig
from whence.cast.dissemination import Dissemination
from whence.cast.gossip import EttbGossip
from whence.cast.views import FullView, PartialView
from whence.clock import MemberId


def make(me: MemberId, config: CastConfig, rng: random.Random, vet: Vet | None = None) -> Dissemination:
    """The dissemination that the configuration asks for."""
    view = (FullView if config.view == "full" else PartialView)(me, config, rng)
    if config.mode == "tree":
        from whence.cast.tree import TreeCast  # lazily: it takes memory

        return TreeCast(me, config, view, rng, vet)
    return EttbGossip(me, config, view, rng, vet)
