"""Client histories of registers that are replicated by a broadcast.

Every process owns one register, which only it writes: publishing an event writes it, delivering one applies it. A
client at each process reads, after every delivery, the register that changed and then all it has seen so far. With one
writer a register there are no concurrent writes of a key, so causal delivery without gaps makes the history causally
consistent (TCC); with less, an effect is read without its cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from whence.audit.history.model import History, Op, Txn, settle


class Happened(NamedTuple):
    """A step of one process, in the order of its steps."""

    process: str
    kind: Literal["publish", "deliver"]
    event: str
    origin: str


def client_history(steps: Iterable[Happened], file: str) -> History:
    """What clients saw: a session for each process, a transaction for each step."""
    registers: dict[str, dict[str, str]] = {}
    written: set[str] = set()
    txns: list[Txn] = []
    for step in steps:
        mine = registers.setdefault(step.process, {})
        txn = Txn(step.process, str(len(txns)), recorded=len(txns))
        if step.kind == "publish":
            txn.ops.append(Op(True, step.origin, step.event))
            written.add(step.event)
        mine[step.origin] = step.event
        if step.kind == "deliver" and step.origin != step.process:
            names = dict.fromkeys([step.origin, *mine])
            txn.ops += [Op(False, name, mine[name]) for name in names]
        if txn.ops:
            txns.append(txn)
    return settle(file, txns)
