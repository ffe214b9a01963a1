"""The array engine: the decisions of the (N, R, K) clock for 10^4 processes and 10^9 deliveries; and how events spread
among 10^6 members, with causal order on top."""

from whence.lab.scale.dissemination import GossipResult, run_gossip
from whence.lab.scale.gossip import GossipSettings
from whence.lab.scale.network import ScaleSettings
from whence.lab.scale.run import ScaleResult, bound, run_scale

__all__ = ["GossipResult", "GossipSettings", "ScaleResult", "ScaleSettings", "bound", "run_gossip", "run_scale"]
