"""The array engine: the decisions of the (N, R, K) clock for 10^4 processes and 10^9 deliveries."""

from whence.lab.scale.latencies import CITIES, read_latencies
from whence.lab.scale.network import Settings
from whence.lab.scale.run import Result, bound, run

__all__ = ["CITIES", "Result", "Settings", "bound", "read_latencies", "run"]
