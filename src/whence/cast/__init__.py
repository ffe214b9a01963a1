"""Dissemination without order (PrCast of CCC11; docs/protocols.md). This room knows only `clock`."""

from whence.cast.base import CastOutput as CastOutput
from whence.cast.base import CastSend as CastSend
from whence.cast.base import First as First
from whence.cast.base import Heard as Heard
from whence.cast.base import MemberDown as MemberDown
from whence.cast.base import MemberUp as MemberUp
from whence.cast.config import CastConfig as CastConfig
from whence.cast.dissemination import Dissemination as Dissemination
from whence.cast.gossip import EttbGossip as EttbGossip
from whence.cast.make import make as make
from whence.cast.messages import CastMessage as CastMessage
from whence.cast.messages import Gossip as Gossip
from whence.cast.messages import Item as Item
from whence.cast.messages import News as News
from whence.cast.messages import Subscribe as Subscribe
from whence.cast.messages import Welcome as Welcome
from whence.cast.messages import check as check
