"""Broadcast among processes on loopback, ours and its peers: each is `python -m bench.peers.NAME JSON`."""
