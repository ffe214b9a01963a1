"""A small recorded editing session."""

from __future__ import annotations

from whence.lab.replay import Recording


def small() -> Recording:
    from whence.lab.replay import Txn

    a = [
        Txn((0, 0, 0), [(0, 0, "hello")]),
        Txn((1, 0, 0), [(5, 0, " world")]),
        Txn((2, 0, 0), [(0, 1, "J")]),
        Txn((3, 1, 1), [(0, 0, ">")]),
    ]
    b = [Txn((1, 0, 0), [(5, 0, "!"), (0, 0, "(")])]
    c = [Txn((2, 1, 0), [(1, 2, "")])]
    return Recording([a, b, c], ">(Jllo world!")  # the smaller client id comes first
