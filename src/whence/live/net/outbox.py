"""The outputs of a member's steps on their way to the disk, and then to everybody else.

1. A step that has to be on disk is there before others or the application know of it. Steps leave in their order.
2. Outputs that may be sent before the step is on disk (`split`): otherwise a slow disk would cost its member the
   ticket, and its place in the others' views. They may overtake what the ring has said before and a promise held back:
   the council takes messages in any order, and the neighbours make no promise that a disk has to have.
3. While the disk is behind, digests of later rounds are dropped first, then messages; deliveries never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from whence.core.cast.messages import Gossip, News, Subscribe, Welcome
from whence.core.clock import AnyFrame
from whence.core.order.messages import Recover, SnapshotRefused, SnapshotRequest, StateRequest
from whence.core.ports import Arrived, Deliver, Output, Published, Remember, Send
from whence.core.ring.messages import Claim, Missing, Read, RingMessage, Sit
from whence.live.net.queues import Batch
from whence.live.net.scribe import Scribe

WAITING_DIGESTS = 16
"""Steps that wait for the disk, above which the digests of further rounds are dropped: each round has a newer one."""
WAITING_STEPS = 1024
"""Steps that wait for the disk, above which messages that wait with them are lost: a disk may stand still for hours."""
UNWRITTEN_BYTES = 8 << 20
"""Bytes that wait for the disk, above which frames are shed and publishing waits."""
STEP_BYTES = 1024
"""What a step that waits for the disk costs beside its bytes."""

_QUESTIONS = (Subscribe, Welcome, Recover, SnapshotRequest, SnapshotRefused, StateRequest, Sit, Read, Claim, Missing)
"""Messages that hand on no event, and promise nothing as a voter. (SIT, like other messages of a ring, has the number
of the last event. If that event is lost with this process, its successor looks for it in vain.)"""


@dataclass(slots=True)
class _Step:
    """A step that waits for the disk."""

    out: list[Output] | None
    """None: it has been carried out."""
    batch: Batch | None
    promises: bool
    size: int


class Outbox:
    """Passes on the outputs of steps: `finish` carries them out, `send` sends some of them early."""

    def __init__(
        self,
        scribe: Scribe,
        finish: Callable[[list[Output], Batch | None], None],
        send: Callable[[Sequence[Output]], None],
    ) -> None:
        self.scribe = scribe
        self.lost = 0
        """Messages thrown away because the disk has stood still for too long."""
        self._finish = finish
        self._send = send
        self._unwritten = self._promises = 0  # bytes, and steps of a voter, that wait for the disk

    @property
    def full(self) -> bool:
        """The disk is behind: no room for more events."""
        return self._unwritten > UNWRITTEN_BYTES

    def put(
        self,
        out: list[Output],
        batch: Batch | None,
        checkpoint: bytes | None,
        held: Iterable[AnyFrame] | None = None,
        state: bytes | None = None,
    ) -> None:
        """The outputs of a step. `checkpoint`: the member after it, to be saved with it; None: it only waits its turn.
        `held`: all frames of the recovery buffer, where a snapshot or the last life has filled it. `state`: that of the
        application, from a snapshot."""
        scribe = self.scribe
        if checkpoint is None and not scribe.busy:
            self._finish(out, batch)
            return
        delivered = [o for o in out if isinstance(o, Deliver)]
        size = 0 if checkpoint is None else STEP_BYTES + len(checkpoint) + sum(len(o.frame.body) for o in delivered)
        step = _Step(out, batch, any(isinstance(o, Remember) for o in out), size)
        self._promises += step.promises
        self._unwritten += size
        if checkpoint is not None:
            arrived = [o.frame for o in out if isinstance(o, Arrived)] if held is None else list(held)
            sync = step.promises or any(isinstance(o, Published) for o in out)
            scribe.save(checkpoint, delivered, arrived, state, sync, partial(self._written, step))
        if step.out is None or scribe.broken:
            return
        early, step.out = split(step.out, self._promises > 0, scribe.waiting < WAITING_DIGESTS)
        if scribe.waiting > WAITING_STEPS and batch is None:
            waited, step.out = len(step.out), [o for o in step.out if not isinstance(o, Send)]
            self.lost += waited - len(step.out)
        if checkpoint is None and (step.out or batch is not None):
            scribe.after(partial(self._written, step))
        self._send(early)

    def _written(self, step: _Step) -> None:
        """The disk has the step, and all before it."""
        out, step.out = step.out, None
        self._unwritten -= step.size
        self._promises -= step.promises
        if out is not None:
            self._finish(out, step.batch)


def without_frames(gossip: Gossip, news: bool = True) -> Gossip:
    """Only the membership in it, and the news of the ring."""
    kept = [(i, a) for i, a in zip(gossip.items, gossip.ages, strict=False) if news and isinstance(i, News)]
    return msgspec.structs.replace(
        gossip, items=tuple(i for i, _ in kept), ages=tuple(a for _, a in kept), digest=None, heads=()
    )


def split(out: Sequence[Output], promised: bool, digests: bool) -> tuple[list[Output], list[Output]]:
    """Outputs that may be sent before the step is on disk, and those that wait for it. `promised`: a promise of a voter
    is not on disk yet, so what the ring says waits, too: ATTEND among it, so that a voter whose disk stands still is
    replaced as one that crashed. `digests`: those of rounds wait as well; else they are dropped."""
    early: list[Output] = []
    late: list[Output] = []
    lighter: dict[int, Gossip] = {}  # by the `id` of a message: its light form is made once, however many get it
    for o in out:
        if not isinstance(o, Send):
            late.append(o)
        elif isinstance(o.message, _QUESTIONS) or (isinstance(o.message, RingMessage) and not promised):
            early.append(o)
        elif isinstance(o.message, Gossip):
            light = lighter.setdefault(id(o.message), without_frames(o.message, not promised))
            if light.items or light.members or light.unsubs:
                early.append(Send(o.to, light, o.reliable))
            if len(light.items) < len(o.message.items) or digests:
                late.append(o)
        else:
            late.append(o)
    return early, late
