"""The levels and the patterns that break them: every name stands here once.

RC, RA and TCC are defined over transactions (Biswas & Enea 2019). CC, CM and CCv are defined over single operations
(Bouajjani et al. 2017). Pattern names are Plume's (OOPSLA 2024) and Bouajjani's; those of lists are ours.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

Level = Literal["RC", "RA", "TCC", "CC", "CM", "CCv"]

LEVELS: Final[tuple[Level, ...]] = get_args(Level)
TRANSACTIONAL: Final[tuple[Level, ...]] = ("RC", "RA", "TCC")
"""From weak to strong: a history that satisfies one satisfies those before it."""
REGISTERS: Final[tuple[Level, ...]] = ("CC", "CM", "CCv")

ALL: Final[tuple[Level, ...]] = LEVELS
FROM_RA: Final[tuple[Level, ...]] = ("RA", "TCC")

PATTERNS: Final[dict[str, tuple[tuple[Level, ...], str]]] = {
    "ThinAirRead": (ALL, "reads a value that nobody wrote"),
    "AbortedRead": (ALL, "reads a value whose writer aborted"),
    "FutureRead": (ALL, "reads a value that it writes only later itself"),
    "NotMyOwnWrite": (ALL, "reads another transaction's value after its own write"),
    "NotMyLastWrite": (ALL, "reads a value of its own that it has overwritten"),
    "IntermediateRead": (ALL, "reads a value that its writer overwrote before it committed"),
    "DuplicateElement": (ALL, "reads a list with an element twice"),
    "IncompatibleOrder": (ALL, "reads a list that is no prefix of the longest one of its key"),
    "CyclicVersionOrder": (ALL, "the order that the lists show contradicts itself, or sessions and reads"),
    "CyclicCO": (ALL, "a transaction is its own cause"),
    "NonMonoReadCO": (TRANSACTIONAL, "one transaction reads newer, then older"),
    "NonMonoReadAO": (TRANSACTIONAL, "transactions read newer, then older, of writers that cannot be ordered"),
    "NonRepeatableRead": (FROM_RA, "one transaction reads two values of one key"),
    "FracturedReadCO": (FROM_RA, "sees a transaction in part, or a session misses its own write"),
    "FracturedReadAO": (FROM_RA, "each of several transactions would have to commit first"),
    "COConflictAO": (("TCC",), "reads what a transaction in its causal past had overwritten"),
    "ConflictAO": (("TCC",), "readers force opposite orders of the writers"),
    "WriteCOInitRead": (REGISTERS, "reads the initial value although a write is in its causal past"),
    "WriteCORead": (REGISTERS, "reads a value although a newer write is in its causal past"),
    "CyclicCF": (("CCv",), "readers force opposite orders of the writes"),
    "WriteHBInitRead": (("CM",), "one session cannot order the writes it saw before its read of the initial value"),
    "CyclicHB": (("CM",), "one session cannot order the writes it saw"),
}
"""Pattern -> the levels that forbid it, and what is wrong in words."""


def weakest(pattern: str) -> Level:
    """The weakest level that forbids the pattern."""
    return PATTERNS[pattern][0][0]
