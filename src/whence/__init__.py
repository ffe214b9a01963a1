"""Causally ordered group communication at gossip scale."""

__version__ = "0.1.0"
