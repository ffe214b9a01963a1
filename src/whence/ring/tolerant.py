"""The fault-tolerant ring: CCC11 Algorithms 2-4 with rules 7-19 of ring.md, and the graceful leave of rules 2-6.

Each part has its own file and opens with its rules:

    core.py        a seat, timers, founding, applying for a ticket
    neighbours.py  rounds: polls and the lease, UPDATE and L           (lease.py, edge.py, table.py)
    admission.py   CJOIN, probation
    exclusion.py   EXCLUDE, REQCOORD, TempRounds
    departure.py   CLEAVE
    reunion.py     RALLY: a dead ring is founded again

This one joins them: which message goes where, which timer does what.
"""

from __future__ import annotations

from typing import assert_never

from whence.clock import MemberId
from whence.ring.messages import (
    AckCJoin,
    AckCLeave,
    AckCoord,
    AckExclude,
    AckSucc,
    AckUpdate,
    Alive,
    Cancel,
    CJoin,
    CLeave,
    Decline,
    Exclude,
    NackCoord,
    NackLeave,
    NewSucc,
    Poll,
    Rally,
    Reject,
    ReqCoord,
    RingMessage,
    Update,
    Who,
    Witness,
)
from whence.ring.reunion import Reunion


class TolerantRing(Reunion):
    """One process's part in a ring that survives up to k failures in a neighbourhood of 2k+1."""

    def _founded(self) -> None:
        super()._founded()
        if self.seat is not None:
            self._after(self.config.round_ns, "round")

    def _receive(self, sender: MemberId, message: RingMessage) -> None:
        match message:
            case Poll():
                self._on_poll(sender, message)
            case Alive():
                self._on_alive(sender, message)
            case Update():
                self._on_update(sender, message)
            case AckUpdate():
                self._on_ack_update(sender, message)
            case CJoin():
                self._on_cjoin(sender, message)
            case Reject():
                self._on_reject(sender, message)
            case AckCJoin():
                self._on_ack_cjoin(sender, message)
            case Decline():
                self._on_decline(sender, message)
            case Who():
                self._on_who(sender, message)
            case Rally():
                self._on_rally(sender, message)
            case Witness():
                self._on_witness(sender, message)
            case Exclude():
                self._on_exclude(sender, message)
            case AckExclude():
                self._on_ack_exclude(sender, message)
            case ReqCoord():
                self._on_req_coord(sender, message)
            case AckCoord():
                self._on_ack_coord(sender, message)
            case NackCoord():
                self._on_nack_coord(sender, message)
            case Cancel():
                self._on_cancel(sender, message)
            case CLeave():
                self._on_cleave(sender, message)
            case AckCLeave():
                self._on_ack_cleave(sender, message)
            case NackLeave():
                self._on_nack_leave(sender, message)
            case NewSucc() | AckSucc():
                pass  # the fault-free protocol's; here UPDATE says it
            case _:
                assert_never(message)

    def _timer(self, name: str) -> None:
        match name:
            case "round":
                self._round()
            case "update":
                self._update_unanswered()
            case "exclude":
                self._next_candidate()
            case "acks":
                self._failed("no quorum")
            case "temp":
                self._temp_over()
            case "newcomer":
                self._newcomer_unconfirmed()
            case "probation":
                self._not_confirmed()
            case "frozen":
                self._frozen_too_long()
            case "patience":
                self._give_up_leaving()
            case "leave":
                self._leave_if_possible()
            case "quarantine":
                self._founded()
            case "look":
                self._look_around()
            case "apply":
                self._apply()
            case "answer":
                self._no_answer()
            case "rally":
                self._rally()
            case "gathered":
                self._gathered()
            case _:
                raise AssertionError(name)
