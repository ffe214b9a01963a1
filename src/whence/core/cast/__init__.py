"""Dissemination without order (PrCast of CCC11; docs/protocols.md). This room knows only `clock`."""

import random

from whence.core.cast.config import CastConfig as CastConfig
from whence.core.cast.gossip import Dissemination as Dissemination
from whence.core.cast.gossip import EttbGossip as EttbGossip
from whence.core.cast.messages import CastMessage as CastMessage
from whence.core.cast.messages import CastOutput as CastOutput
from whence.core.cast.messages import First as First
from whence.core.cast.messages import Gossip as Gossip
from whence.core.cast.messages import Heard as Heard
from whence.core.cast.messages import Item as Item
from whence.core.cast.messages import MemberDown as MemberDown
from whence.core.cast.messages import MemberUp as MemberUp
from whence.core.cast.messages import News as News
from whence.core.cast.messages import Subscribe as Subscribe
from whence.core.cast.messages import Vets
from whence.core.cast.messages import Welcome as Welcome
from whence.core.cast.views import FullView, PartialView
from whence.core.clock import MemberId


def make(me: MemberId, config: CastConfig, rng: random.Random, vets: Vets | None = None) -> Dissemination:
    """The dissemination that the configuration asks for."""
    view = (FullView if config.view == "full" else PartialView)(me, config, rng)
    if config.mode == "tree":
        from whence.core.cast.tree import TreeCast  # lazily: it takes memory

        return TreeCast(me, config, view, rng, vets)
    return EttbGossip(me, config, view, rng, vets)
