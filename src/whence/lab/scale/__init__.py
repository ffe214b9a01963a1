"""The array engine: the decisions of the (N, R, K) clock for 10^4 processes and 10^9 deliveries."""

from whence.lab.scale.network import ScaleSettings
from whence.lab.scale.run import ScaleResult, bound, run_scale

__all__ = ["ScaleResult", "ScaleSettings", "bound", "run_scale"]
