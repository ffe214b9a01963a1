"""One member of one cluster: cast, ring and order composed. Pure: inputs and `now` in, outputs out.

What it adds to its parts:

1. Timers run first: what is due at `now` is done before the input is looked at, so nothing is published under an
   expired lease.
2. A new owner publishes only after it has delivered what the ticket's former owners published, as far as the ring
   knows.
3. A joiner asks a member whose order promises at least as much (as a last resort any) for a snapshot: clock and
   application state at one point of that member's deliveries. Meanwhile it keeps frames and asks for no ticket. With
   roles one member's word is not enough: a receiver could tell of events that nobody published, and others would wait
   for them as soon as the joiner publishes. The digest of a second member has to cover the snapshot's clock.
4. A peer that breaks the protocol is cut off. Nothing of its message counts or is forwarded: others would cut off
   whoever forwards it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, assert_never, get_args

import msgspec

from whence.core import ports
from whence.core.cast import CastMessage, News, make
from whence.core.cast.messages import CastOutput, First, Gossip, Graft, Heard, Subscribe
from whence.core.clock import AnyFrame, Entry, Incarnation, MemberId, Send, address_of, body_size
from whence.core.clock.bounds import MAX_FRAME_BYTES, MAX_PAYLOAD_BYTES, MAX_STATE_BYTES, keep_last
from whence.core.clock.logs import Follow, Lamport, LogReport, LogReports, Telling, Tick
from whence.core.config import Config
from whence.core.order import RANK, Blocked, Numbering, OrderContext, Ordering, Seal
from whence.core.order import make as make_ordering
from whence.core.order.messages import (
    AckRecover,
    DirectAck,
    DirectMessage,
    OrderMessage,
    OrderState,
    Recover,
    Snapshot,
    SnapshotRefused,
    SnapshotRequest,
    StatePart,
    StateRequest,
    TotalState,
)
from whence.core.order.recovery import KEPT_BYTES, KEPT_FRAMES, OWN_BYTES, OWN_FRAMES, newest
from whence.core.order.total import TotalOrdering
from whence.core.order.unicast import MAX_HELD, Unicast
from whence.core.ring import CouncilRing, NoRing, Ring
from whence.core.ring import context as says
from whence.core.ring import make as make_ring
from whence.core.ring.base import told_epoch
from whence.core.ring.messages import JoinedNews, RingMessage, check_message
from whence.core.total import Teller
from whence.core.wire import decode_news, encode
from whence.errors import BadMessage, ForgedTicket, RemoteError, UsageError, WrongKind

Outputs = list[ports.Output]

MAX_CUT_OFF = 1024
MAX_SNAPSHOTS = 8  # being taken for others at a time; further joiners are told `busy`
STATE_PART = 1 << 20  # bytes of a large state at a time: gossip passes between two parts
SNAPSHOT_PATIENCE = 10  # join time-outs that the application may take to hand out its state
OFFER_PATIENCE = 3  # join time-outs that a snapshot waits for a second member's word
MANY_OFFERS = 8  # in vain; then the orphans in a snapshot are believed: members forget them at different times
MANY_ASKS = 3  # in vain; then a member counts as one that cannot help
HEIRS = 3  # members that get the recovery buffer of one that leaves
PUBLISHING = (Gossip, *get_args(Telling))
"""Messages that bring what is published: without a budget."""
ASKS: dict[type, int] = {
    **{kind: 64 for kind in get_args(CastMessage | RingMessage | OrderMessage) if kind not in PUBLISHING},
    Subscribe: 16,  # answered with a sample of the view
    Graft: 16,  # in bytes: `cast.tree.GIVEN_BYTES`
    Recover: 256,  # in bytes: `order.layer.MAX_ANSWERS`
    AckRecover: 512,
    SnapshotRequest: 2,
    StateRequest: 16,  # each is answered with a megabyte
    News: 256,  # of which the history does not know: each costs a signature's check
}
"""Messages of each kind that one address may send in a round and that are looked at: far more than an honest member has
reason to. The others are counted (`order.unanswered`). Else whoever only asks would leave no time for others' events
and for the own lease. For what is published there is back pressure."""
MAX_ASKED = 1 << 16
LEAVE_PATIENCE = 20  # rounds to wait for the ring to take the ticket back; then leave without waiting


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """What is on disk: enough to go on after a crash with no event delivered twice and no id used twice."""

    me: MemberId
    order: str
    clock: OrderState
    own: tuple[AnyFrame, ...]
    epoch: int
    coordinators: tuple[tuple[int, MemberId], ...] = ()
    """Whom to ask for a ticket; hints that may be outdated."""
    ring: says.Memory | None = None
    """What it remembers as a voter of the council."""
    kept: tuple[AnyFrame, ...] = ()
    """The end of the recovery buffer: what was delivered before a restart can be given to others after it."""


def with_kept(checkpoint: bytes, frames: tuple[AnyFrame, ...]) -> bytes:
    """A checkpoint with the frames that were kept beside it."""
    saved = msgspec.msgpack.decode(checkpoint, type=Checkpoint)
    own = newest(frames, OWN_FRAMES, OWN_BYTES, address_of(saved.me))
    return msgspec.msgpack.encode(msgspec.structs.replace(saved, own=own, kept=frames))


class Member:
    """One life of one process in one cluster."""

    def __init__(
        self,
        me: MemberId,
        config: Config,
        rng: random.Random,
        checkpoint: bytes | None = None,
        seal: Seal | None = None,
        disk: bool = False,
        memory: says.Memory | None = None,
    ) -> None:
        """`checkpoint`: what the last life left on its disk. `disk`: this life has one, too, at least for its memory as
        a voter. `memory`: what the last life left of that, if there is no checkpoint."""
        self.me = me
        self.config = config
        self.rng = rng
        self.seal = seal
        vets: dict[type, Any] = {News: self._vet_news}  # rule 4: what this member refuses it does not forward
        self.cast = make(me, config.cast, random.Random(rng.getrandbits(64)), vets)
        dice = random.Random(rng.getrandbits(64))
        lamport = Lamport() if config.ordering.total else None
        context = OrderContext(me, config.ordering, dice, self.cast.members, self.cast.sample, seal, lamport)
        self.ordering: Ordering[Any, Any] = make_ordering(context)
        vets |= dict.fromkeys(get_args(AnyFrame), self.ordering.vet)
        self._checkpoint = msgspec.msgpack.decode(checkpoint, type=Checkpoint) if checkpoint is not None else None
        votes = seal is None or seal.can_sign
        self.ring: Ring = NoRing(me, config.ring)
        self.teller: Teller | None = None
        if not config.free:
            memory = memory if self._checkpoint is None else self._checkpoint.ring
            dice = random.Random(rng.getrandbits(64))
            if lamport is None:
                self.ring = make_ring(me, config.ring, dice, memory, disk, votes)
            else:
                self._with_logs(lamport, dice, disk, votes)
        self.unicast = Unicast(me, config.ordering.time_to_recover_ns)
        self.started = False
        self.left = False
        self.wake_at: int | None = None  # when `Wake()` is wanted, in this member's time
        self.cut_off: dict[MemberId, str] = {}
        self.ring_stats = {"excluded": 0, "rejected": 0, "frozen": 0, "thawed": 0}
        self._epoch = self._checkpoint.epoch if self._checkpoint else 0
        self._news = 0
        self._closes: tuple[int, Entry, int] | None = None  # (ticket, what to catch up with, give up waiting at)
        self._join = _Join()
        self._taking: dict[str, tuple[int, MemberId, SnapshotRequest, OrderState]] = {}
        self._giving: dict[str, tuple[int, MemberId, bytes]] = {}  # large states: when last asked for, by whom
        self._taken = 0
        self._asked: dict[tuple[str, type], int] = {}  # in this round
        self._leave_by: int | None = None
        self._ambition: ports.FoundRing | ports.Coordinate | None = None  # done once it has joined

    def _with_logs(self, lamport: Lamport, dice: random.Random, disk: bool, votes: bool) -> None:
        """The ring of a cluster with total order. What a voter remembers counts only with its logs."""
        saved = self._checkpoint
        memory = saved.ring if saved is not None else None
        vote = saved.clock.vote if saved is not None and isinstance(saved.clock, TotalState) else None
        promised = memory.vote.council.number if memory is not None and memory.vote is not None else None
        if memory is not None and promised is not None and (vote is None or vote.council != promised):
            memory = msgspec.structs.replace(memory, voter=self.me, vote=None)
        ring = CouncilRing(self.me, self.config.ring, dice, memory, disk, votes, lamport)
        more = random.Random(dice.getrandbits(64))
        self.teller = Teller(self.me, self.config, ring, self.ordering, more, self.cast.sample, self.seal)
        self.ring = ring
        if self.teller.keeper is not None and vote is not None and memory is not None and memory.vote is not None:
            self.teller.keeper.resume(vote.council, vote.now, vote.begun)

    # -- the one way in -----------------------------------------------------------------------------------------

    def handle(self, input: ports.Input, now: int) -> Outputs:
        """Take an input; how its outputs are carried out: `ports`."""
        out: Outputs = []
        if self.left:
            return out
        past = list(self.ordering.T) if self.unicast.held else None
        if self.wake_at is not None and (self.wake_at <= now or self._closes is not None):  # what ends it may be there
            self._time(now, out)
        if isinstance(input, ports.Publish):
            self._publish(input.payloads, now, out)
        elif not isinstance(input, ports.Received):
            self._do(input, now, out)
        elif self.started and self._hears(input.sender, type(input.message)):
            try:
                if isinstance(input.message, CastMessage):
                    self._cast(self.cast.receive(input.sender, input.message, now), now, out)
                else:
                    self._received(input.sender, input.message, now, out)
            except RemoteError as error:
                if not (isinstance(error, WrongKind) and self.ordering.joining):
                    self._cut(input.sender, f"{type(error).__name__}: {error}", now, out)
                # else this member may be in the wrong cluster: the answer to its snapshot request says
        if self.unicast.held:
            out[:] = self.unicast.among(out, past, self.ordering.T)
        if self._leave_by is not None:
            self.ring.contacts(self.cast.members())
            if self._leave_by <= now or self.ring.retired:
                self._depart(now, out)
        self.wake_at = None
        if self.started and not self.left:
            at = self.cast.wake_at
            told_at = self._tell(now, out) if self.teller is not None else None
            others = (self.ordering.wake_at, self._join.retry_at, self._leave_by, self.unicast.wake_at, told_at)
            for other in (self.ring.wake_at, *others):
                if other is not None and other < at:
                    at = other
            self.wake_at = at if self._closes is None else min(at, self._closes[2])
        return out

    def _tell(self, now: int, out: Outputs) -> int | None:
        """Total order: what has its place is delivered, and what is known is told; when to do so again."""
        assert self.teller is not None
        self.teller.step(now, out, self._ring)
        if any(isinstance(each, ports.Behind) for each in out):
            self.stop()
        return self.teller.wake_at

    def _hears(self, sender: MemberId, kind: type) -> bool:
        return sender not in self.cut_off and sender != self.me and self._may_ask(sender, kind)

    def _may_ask(self, sender: MemberId, kind: type) -> bool:
        """The budget of the asker for such messages is not used up."""
        most = ASKS.get(kind)
        if most is None:
            return True
        asker = (address_of(sender), kind)
        count = self._asked.get(asker, 0)
        if count >= most or len(self._asked) >= MAX_ASKED:
            self.ordering.stats.unanswered += 1
            return False
        self._asked[asker] = count + 1
        return True

    def _do(self, input: ports.Seldom, now: int, out: Outputs) -> None:
        match input:
            case ports.Wake():
                pass
            case ports.CountCopies(token, events, copies, patience):
                out += self.ordering.count_copies(token, events, copies, patience, now)
            case ports.SendTo(token, to, payload, patience):
                if refused := self._cannot_send(to):
                    out.append(ports.SentTo(token, refused))
                else:
                    out += self.unicast.send(token, to, payload, self.ordering.T, patience, now, self.seal)
            case ports.SnapshotTaken():
                self._snapshot_taken(input, now, out)
            case ports.Start():
                self._start(input, now, out)
            case ports.Meet(members):
                self._cast(self.cast.meet(members) if self.started else (), now, out)
            case ports.FoundRing() | ports.Coordinate():
                if isinstance(input, ports.FoundRing) and self.teller is not None and self.teller.order is None:
                    why = "the first voter must be in total order: it keeps the logs, and hands on its position"
                    out.append(ports.Refused("found", why))
                elif self.seal is not None and not self.seal.can_sign:  # it could not even announce its ticket
                    out.append(ports.Refused("coordinate", "this member may only receive"))
                else:
                    self._ambition = input
                    self._pursue_ambition(now, out)
            case ports.Resign():
                self._ambition = None
                self._ring(self.ring.resign(now), now, out)
            case ports.Leave():
                self._leave(now, out)
            case ports.Move():
                self._move(input, now, out)
            case ports.Unreachable():
                if self.started:
                    self._cast(self.cast.unreachable(input.address, now), now, out)
            case ports.Vacated():
                self._cast(self.cast.vacated(input.address), now, out)
            case ports.BadBytes():
                self._cut(input.sender, input.error, now, out)
            case _:
                assert_never(input)

    # -- what the application asks ------------------------------------------------------------------------------

    @property
    def order(self) -> str:
        return self.config.ordering.order

    @property
    def joined(self) -> bool:
        """It takes part: it has a clock to go by."""
        return self.started and not self.ordering.joining and not self.left

    @property
    def may_publish(self) -> bool:
        """It holds a ticket and has caught up with the ticket's past."""
        return self.joined and self._closes is None and self.ring.entitled

    def stop(self) -> None:
        """The runtime feeds it no more: it takes part no longer, though the others are not told."""
        self.left, self.wake_at = True, None

    def numbering(self) -> Numbering:
        """The ids of the events that are published next, while it may publish and until it handles anything else."""
        return self.ordering.numbering(self.ring.tenure)

    @property
    def arrived(self) -> int:
        """Bytes of a large state that a joiner has so far."""
        return len(self._join.state)

    def blocked(self) -> int:
        """Frames received and not yet deliverable."""
        return len(self.ordering.held)

    def why_blocked(self, event: str) -> Blocked:
        """Which events this one waits for, who was asked, until when."""
        return self.ordering.why_blocked(event)

    def waits_for(self) -> str:
        """What the next delivery in total order waits for, in words; empty: nothing is due."""
        order = self.ordering
        return order.merge.waits if isinstance(order, TotalOrdering) else ""

    def members(self) -> list[MemberId]:
        """The members this one knows, itself first."""
        return [self.me, *self.cast.members()]

    def buffers(self) -> dict[str, tuple[int, int]]:
        """Every bounded buffer: fill and bound."""
        found = self.ordering.buffers()
        found["direct"] = (len(self.unicast.held), MAX_HELD)
        found["snapshots"] = (len(self._taking) + len(self._giving), MAX_SNAPSHOTS)
        found["cut off"] = (len(self.cut_off), MAX_CUT_OFF)
        return found

    def stats(self) -> dict[str, int]:
        """All counters, by layer."""
        counters: dict[str, int] = {}
        for layer, stats in (("order", self.ordering.stats), ("cast", self.cast.stats)):
            for name in stats.__dataclass_fields__:
                counters[f"{layer}.{name}"] = getattr(stats, name)
        counters.update({f"ring.{name}": n for name, n in self.ring_stats.items()})
        counters["ring.implausible"] = self.ring.implausible
        counters["order.evicted"] = self.ordering.buffer.evicted
        counters["cut_off"] = len(self.cut_off)
        return counters

    def checkpoint(self, kept: bool = True) -> bytes:
        """What to write to disk, valid for the moment after the last `handle`. `kept`: with the end of the recovery
        buffer and the own tail in it; a runtime that writes each new frame once puts both back by `with_kept`."""
        buffer = self.ordering.buffer
        tail = newest(buffer, OWN_FRAMES, OWN_BYTES, address_of(self.me)) if kept else ()
        known = tuple(sorted(self.ring.coordinators().items()))
        clock, epoch, memory = self.ordering.state(), self._seen_epoch(), self.ring.memory()
        frames = newest(buffer, KEPT_FRAMES, KEPT_BYTES) if kept else ()
        return msgspec.msgpack.encode(Checkpoint(self.me, self.order, clock, tail, epoch, known, memory, frames))

    # -- start and join -----------------------------------------------------------------------------------------

    def _start(self, start: ports.Start, now: int, out: Outputs) -> None:
        if self.started:
            out.append(ports.Refused("start", "already started"))
            return
        self.started = True
        self._cast(self.cast.start(start.contacts, now, start.genesis), now, out)
        saved = self._checkpoint
        if saved is not None:
            self.ordering.load(saved.clock, now)
            self.ring.learn(dict(saved.coordinators))
            self._anchor()
            self._begin("checkpoint", "", now, out)
            for frame in saved.kept:
                out += self.ordering.keep(frame, saved.me, now)
            for frame in saved.own:
                out += self.ordering.keep(frame, saved.me, now)
                self._cast(self.cast.broadcast(frame, now), now, out)
        elif start.genesis or not start.contacts:
            self.ordering.found(start.contacts)
            self._begin("genesis", "", now, out)
            memory = self.ring.memory()  # a voter's may know of events that nobody has any more: do not wait for them
            for row in () if memory is None or memory.vote is None else memory.vote.table.rows:
                out += self.ordering.forgo(row.ticket, row.last, now)
        else:
            self._join.contacts = start.contacts
            self._ask_for_snapshot(now, out)

    def _anchor(self) -> None:
        """The ring has come at least as far as what was published."""
        self.ring.anchor(max((inc for inc, _ in self.ordering.T), default=0))

    def _begin(self, how: str, token: str, now: int, out: Outputs) -> None:
        self._join.retry_at = None
        out.append(ports.Joined(how, token))
        out += self.ordering.begin(now)
        self._ring(self.ring.start(now), now, out)
        self._pursue_ambition(now, out)

    def _pursue_ambition(self, now: int, out: Outputs) -> None:
        """Rule 3: a joiner has no use for a ticket, and would block it for others."""
        if not self.joined or self._ambition is None:
            return
        ambition, self._ambition = self._ambition, None
        self.ring.contacts(self.cast.sample(3))
        if isinstance(ambition, ports.FoundRing):
            epoch = told_epoch(self._seen_epoch())
            self._ring(self.ring.found(now, epoch, ambition.force, ambition.fresh), now, out)
        else:
            self._ring(self.ring.coordinate(now), now, out)

    def _ask_for_snapshot(self, now: int, out: Outputs) -> None:
        join = self._join
        if join.offer is not None and not self._offer_is_over(now, out):
            return
        known = self._known()
        peers = [p for p in known if p != join.asked and p not in self.cut_off] or known
        join.retry_at = now + self.config.join_timeout_ns
        if not peers:
            return
        join.asked = self.rng.choice([p for p in peers if p not in join.weaker] or peers)
        join.nonce = self.rng.getrandbits(48)
        join.accepted, join.state = False, bytearray()
        # Only when every known member has said that it is weaker, or a joiner too (it may wait for this one), or was
        # asked often: a member that has not answered may be stronger, and may not want to.
        members = self.cast.members() or list(join.contacts)
        unable = {*join.weaker, *join.joining, *(m for m, asks in join.asks.items() if asks >= MANY_ASKS)}
        last_resort = unable.issuperset(members)
        join.asks[join.asked] = join.asks.get(join.asked, 0) + 1
        request = SnapshotRequest(join.nonce, RANK[self.order], last_resort, self.config.ordering.joins)
        out.append(ports.Send(join.asked, request, reliable=True))

    def _known(self) -> list[MemberId]:
        """Whom a joiner knows."""
        return list(dict.fromkeys([*self._join.contacts, *self.cast.members()]))

    def _offer_is_over(self, now: int, out: Outputs) -> bool:
        """Nobody has vouched for the snapshot in hand yet: ask again, take it if nobody else answers, or give it up."""
        join = self._join
        assert join.offer is not None
        join.waits += 1
        if join.accepted:  # and its giver has fallen silent
            join.offer = None
            return True
        if join.waits < OFFER_PATIENCE:
            join.retry_at = now + self.config.join_timeout_ns
            self._cast(self.cast.meet(self._known()), now, out)
        elif any(address_of(m) != address_of(join.offer[0]) for m in join.said):
            join.offer, join.refused = None, join.refused + 1
            return True
        else:
            self._install(now, out)
        return False

    def _on_snapshot_request(self, sender: MemberId, request: SnapshotRequest, now: int, out: Outputs) -> None:
        """Take a snapshot here and now, or say why not."""
        order = self.ordering
        overdue = now - SNAPSHOT_PATIENCE * self.config.join_timeout_ns
        tables: tuple[dict[str, Any], ...] = (self._taking, self._giving)
        for waits in tables:  # the application never answered, the joiner is gone or asks again
            for token, (since, joiner, *_) in list(waits.items()):
                if since < overdue or address_of(joiner) == address_of(sender):
                    del waits[token]
        reason = ""
        state: OrderState | None = None
        if request.kind != self.config.ordering.joins:
            reason = self.config.ordering.joins
        elif order.joining:
            reason = "joining"
        elif len(self._taking) + len(self._giving) >= MAX_SNAPSHOTS:
            reason = "busy"
        elif RANK[self.order] < request.rank and (not request.last_resort or request.rank == RANK["total"]):
            reason = "weaker"  # also as a last resort, if the position is what the joiner needs
        else:
            try:
                state = order.admit(sender, weaker=RANK[self.order] < request.rank)
            except UsageError:  # this member has nothing to share any more
                reason = "busy"
        if state is None:
            out.append(ports.Send(sender, SnapshotRefused(request.nonce, reason), reliable=True))
            return
        self._taken += 1
        token = f"{self.me}/{self._taken}"
        self._taking[token] = (now, sender, request, state)
        out.append(ports.TakeSnapshot(token))

    def _snapshot_taken(self, taken: ports.SnapshotTaken, now: int, out: Outputs) -> None:
        pending = self._taking.pop(taken.token, None)
        if pending is None:
            out.append(ports.Refused("snapshot", f"no snapshot {taken.token!r} is being taken"))
            return
        _, sender, request, state = pending
        coordinators = tuple(sorted(self.ring.coordinators().items()))
        whole = taken.state
        first = whole if len(whole) <= MAX_STATE_BYTES else whole[:STATE_PART]
        message = Snapshot(request.nonce, taken.token, state, coordinators, first, len(whole) - len(first))
        out.append(ports.Send(sender, message, reliable=True))
        if message.more:
            self._giving[taken.token] = (now, sender, whole)
        else:
            out += self.ordering.hand_over(sender)

    def _on_state_request(self, sender: MemberId, request: StateRequest, now: int, out: Outputs) -> None:
        """The next part of a large state. A joiner that waits too long asks for another snapshot."""
        _, joiner, whole = self._giving.get(request.token, (0, "", b""))
        if joiner != sender or request.at >= len(whole):
            return
        self._giving[request.token] = (now, sender, whole)
        part = StatePart(request.token, request.at, whole[request.at : request.at + STATE_PART])
        out.append(ports.Send(sender, part, reliable=True))
        if request.at + STATE_PART >= len(whole):
            del self._giving[request.token]
            out += self.ordering.hand_over(sender)

    def _on_snapshot(self, sender: MemberId, message: Snapshot, now: int, out: Outputs) -> None:
        join = self._join
        if not self.ordering.joining or message.nonce != join.nonce:
            return
        join.offer, join.waits, join.accepted, join.state = (sender, message), 0, False, bytearray(message.state)
        believed = self.seal is None or self.config.ordering.kind != "tickets"
        if believed or all(address_of(m) == address_of(sender) for m in self._known()):
            self._install(now, out)
        else:
            self._vouch(now, out)

    def _vouch(self, now: int, out: Outputs) -> None:
        """Rule 3: take the snapshot that was offered if somebody else knows as much."""
        join = self._join
        if join.offer is None or join.accepted:
            return
        giver, message = join.offer
        others = (said for member, said in join.said.items() if address_of(member) != address_of(giver))
        if any(self.ordering.vouches(said, message.clock, join.refused < MANY_OFFERS) for said in others):
            self._install(now, out)

    def _on_state_part(self, sender: MemberId, part: StatePart, now: int, out: Outputs) -> None:
        join = self._join
        of = None if join.offer is None else (join.offer[0], join.offer[1].token)
        if not join.accepted or of != (sender, part.token) or part.at != len(join.state) or join.offer is None:
            return
        rest = len(join.offer[1].state) + join.offer[1].more - part.at
        if len(part.state) == min(STATE_PART, rest):  # or a giver could keep it waiting with a byte at a time
            join.state += part.state
            self._install(now, out)

    def _install(self, now: int, out: Outputs) -> None:
        """Take the snapshot, once its state is complete."""
        join = self._join
        assert join.offer is not None
        giver, message = join.offer
        if len(join.state) < len(message.state) + message.more:
            join.accepted, join.retry_at = True, now + self.config.join_timeout_ns
            out.append(ports.Send(giver, StateRequest(message.token, len(join.state)), reliable=True))
            return
        self._join = _Join()
        self.ordering.load(message.clock, now)
        self.ring.learn(dict(message.coordinators))
        self._anchor()
        out.append(ports.InstallSnapshot(message.token, giver, bytes(join.state)))
        self._begin("snapshot", message.token, now, out)

    # -- publish ------------------------------------------------------------------------------------------------

    def _publish(self, payloads: tuple[bytes, ...], now: int, out: Outputs) -> None:
        if not self.may_publish:
            reason = "no ticket" if not self.ring.entitled else "catching up with the ticket's past"
            if not self.joined:
                reason = "not joined yet"
            out.append(ports.Refused("publish", reason))
            return
        size = body_size(payloads)
        if size > MAX_FRAME_BYTES or (size > MAX_PAYLOAD_BYTES < max(map(len, payloads))):
            most = f"at most {MAX_PAYLOAD_BYTES} bytes an event, {MAX_FRAME_BYTES} a frame"
            out.append(ports.Refused("publish", most))  # the others would cut us off for it
            return
        frame, steps = self.ordering.publish(payloads, now, self.ring.tenure)
        self.ring.published(frame.first + frame.count - 1)
        out += steps
        self._cast(self.cast.broadcast(frame, now), now, out)

    def _cannot_send(self, to: MemberId) -> str:
        """Why not to this member; empty: it can."""
        if self.config.free:
            return "a cluster without tickets has no causal messages to one member"
        if not self.joined or to == self.me or to not in self.cast.members():
            return f"{to} is not another member that this one knows"
        return "this member may only receive" if self.seal is not None and not self.seal.can_sign else ""

    def _on_direct(self, sender: MemberId, message: DirectMessage, out: Outputs) -> None:
        frame = message.frame
        if frame.owner != sender or len(message.after) != self.config.tickets or frame.body[:1] != b"\x91":
            raise BadMessage(f"a message to one member from {sender} that is none of its own")
        if self.seal is not None and not self.seal.verify(frame.unsigned(), frame.signature):
            raise ForgedTicket(f"a message to one member of {sender} that no publisher has signed")
        frame.payloads()
        if self.joined and frame.processes == (self.me,):
            out += self.unicast.receive(sender, message)

    def _move(self, move: ports.Move, now: int, out: Outputs) -> None:
        try:
            out += self.ordering.move(move.entries, move.keys, now)
        except UsageError as error:
            out.append(ports.Refused("move", str(error)))

    def _seen_epoch(self) -> int:
        """The highest epoch this member has ever seen."""
        published = (Incarnation.unpack(inc).epoch for inc, _ in self.ordering.T)
        return max(self._epoch, self.ring.epoch, *published)

    # -- receive ------------------------------------------------------------------------------------------------

    def _received(self, sender: MemberId, message: OrderMessage | RingMessage, now: int, out: Outputs) -> None:
        if isinstance(message, RingMessage):
            self._ring(self.ring.receive(sender, message, now), now, out)
            return
        match message:
            case Recover():
                out += self.ordering.on_recover(sender, message)
            case AckRecover():
                out += self.ordering.on_ack_recover(sender, message, now)
                self._caught_up(now, out)
            case DirectMessage():
                self._on_direct(sender, message, out)
            case DirectAck():
                out += self.unicast.acknowledged(sender, message, now)
            case SnapshotRequest():
                self._on_snapshot_request(sender, message, now, out)
            case SnapshotRefused():
                if self.ordering.joining and message.nonce == self._join.nonce:
                    if message.reason not in ("joining", "weaker", "busy"):
                        self._wrong_kind(message.reason, out)
                        return
                    noted = {"weaker": self._join.weaker, "joining": self._join.joining}.get(message.reason, {})
                    if len(noted) < self.config.cast.max_view:
                        noted[sender] = None
                    self._join.retry_at = now + self.config.round_ns // 2
            case Snapshot():
                self._on_snapshot(sender, message, now, out)
            case StateRequest():
                self._on_state_request(sender, message, now, out)
            case StatePart():
                self._on_state_part(sender, message, now, out)
            case Tick() | LogReport() | Follow() | LogReports():
                if self.teller is None:
                    raise WrongKind(f"{type(message).__name__} in a cluster without total order")
                out += self.teller.receive(sender, message, now)
            case _:
                assert_never(message)

    def _wrong_kind(self, theirs: str, out: Outputs) -> None:
        """This member was made for another kind of cluster; retrying is useless."""
        there, here = (k if "tickets" in k else f"mechanism {k}" for k in (theirs, self.config.ordering.kind))
        self._join.retry_at = None
        why = f"the cluster has {there}, and this member ({self.order} order) was made for one with {here}"
        out.append(ports.Refused("join", why))

    def _cut(self, peer: MemberId, error: str, now: int, out: Outputs) -> None:
        if peer in self.cut_off:
            return
        self.cut_off[peer] = error
        keep_last(self.cut_off, MAX_CUT_OFF)
        out.append(ports.CutOff(peer, error))
        self._cast(self.cast.remove(peer), now, out)

    # -- time ---------------------------------------------------------------------------------------------------

    def _time(self, now: int, out: Outputs) -> None:
        """Do what is due."""
        ring_at = self.ring.wake_at
        if ring_at is not None and ring_at <= now:
            self.ring.contacts(self.cast.sample(3))  # whom to ask who the coordinators are
            self._ring(self.ring.wake(now), now, out)
        order_at = self.ordering.wake_at
        if order_at is not None and order_at <= now:
            out += self.ordering.wake(now)
        if self.unicast.wake_at is not None and self.unicast.wake_at <= now:
            out += self.unicast.wake(now)
        if self.cast.wake_at <= now:
            digest = None
            if self.cast.round_at <= now:
                digest = self.ordering.digest()
                self.ordering.answered.clear()
                self.ordering.repeated.clear()
                self._asked.clear()
            self._cast(self.cast.wake(now, digest), now, out)
        if self._join.retry_at is not None and self._join.retry_at <= now:
            self._ask_for_snapshot(now, out)
        if self._closes is not None:
            self._caught_up(now, out)

    def _leave(self, now: int, out: Outputs) -> None:
        self._ring(self.ring.resign(now), now, out)
        self.ring.contacts(self.cast.members())
        self._ring(self.ring.retire(now), now, out)
        self._leave_by = now + LEAVE_PATIENCE * self.config.round_ns

    def _depart(self, now: int, out: Outputs) -> None:
        self._leave_by = None
        for heir in self.cast.sample(HEIRS):
            out += self.ordering.hand_over(heir)
        self._cast(self.cast.leave(now), now, out)
        self.left = True
        out.append(ports.Left())

    # -- the parts' outputs, translated -------------------------------------------------------------------------

    def _cast(self, steps: Iterable[CastOutput], now: int, out: Outputs) -> None:
        for step in steps:
            if isinstance(step, First):
                if isinstance(step.item, News):
                    self._hear(step.item, now, out)
                else:
                    out += self.ordering.receive(step.item, step.sender, step.age, now)
            elif isinstance(step, Heard):
                self.ordering.heard(step.sender, step.digest, now)
                if self.ordering.joining:
                    self._join.said[step.sender] = step.digest
                    keep_last(self._join.said, MAX_SNAPSHOTS)
                    self._vouch(now, out)
            else:
                out.append(step)
        if self._closes is not None:
            self._caught_up(now, out)

    def _vet_news(self, item: News, sender: MemberId) -> bool:
        if self.config.ordering.kind != "tickets":
            raise WrongKind("news of tickets in a cluster without tickets")
        if not self._may_ask(sender, News):
            return False
        if self.seal is not None and not self.seal.verify(item.unsigned(), item.signature):
            raise ForgedTicket(f"news of {item.origin} that no publisher has signed")
        check_message(decode_news(item.body), self.config.tickets)
        return True

    def _hear(self, item: News, now: int, out: Outputs) -> None:
        news = decode_news(item.body)
        self._ring(self.ring.hear(news, now), now, out)
        if isinstance(news, JoinedNews):
            self.ordering.note_owner(news.holder.ticket, news.holder.inc, news.holder.member)
            if self.teller is not None:
                self.teller.hurry()

    def _ring(self, steps: Iterable[says.RingOutput], now: int, out: Outputs) -> None:
        for step in steps:
            match step:
                case Send() | says.Remember():
                    out.append(step)
                case says.Announce():
                    self._news += 1
                    item = News(self.me, self._news, encode(step.news))
                    if self.seal is not None:
                        item = msgspec.structs.replace(item, signature=self.seal.sign(item.unsigned()))
                    self._cast(self.cast.broadcast(item, now), now, out)
                case says.Granted():
                    out.append(ports.Ticket("granted", step.ticket, step.inc))
                    self.ordering.expect(step.ticket, step.closes, now)
                    patience = self.config.ordering.time_to_terminate_ns + self.config.ordering.time_to_recover_ns
                    self._closes = (step.ticket, step.closes, now + patience)
                    self._caught_up(now, out)
                case says.BecameOwner():
                    self.ordering.note_owner(step.ticket, step.inc.packed, self.me)
                    out.append(ports.Ticket("owner", step.ticket, step.inc))
                case says.Lost():
                    self._closes = None
                    out.append(ports.Ticket("lost", step.ticket, step.inc, step.reason))
                case says.Released():
                    self._closes = None
                    out.append(ports.Ticket("released", step.ticket, step.inc))
                case says.Excluded() | says.Rejected() | says.Frozen() | says.Thawed():
                    self.ring_stats[type(step).__name__.lower()] += 1
                    if isinstance(step, says.Rejected) and step.founding:
                        out.append(ports.Refused("found", step.reason))
                case _:
                    assert_never(step)

    def _caught_up(self, now: int, out: Outputs) -> None:
        """Rule 2. An order that may skip waits for a limited time; `reliable` waits until it has everything or knows
        that nobody has it."""
        if self._closes is None:
            return
        ticket, entry, patience = self._closes
        if not self.ordering.caught_up(ticket, entry):
            if now < patience:
                return
            if self.ordering.blocking:
                self._closes = (ticket, entry, now + self.config.round_ns)
                self.ordering.expect(ticket, entry, now)
                return
            out += self.ordering.forgo(ticket, entry, now)
        self._closes = None


class _Join(msgspec.Struct):
    """The state of a joiner that wants a snapshot."""

    contacts: tuple[MemberId, ...] = ()
    asked: MemberId | None = None
    nonce: int = -1
    retry_at: int | None = None
    weaker: dict[MemberId, None] = {}
    joining: dict[MemberId, None] = {}
    asks: dict[MemberId, int] = {}
    """How often each was asked."""
    offer: tuple[MemberId, Snapshot] | None = None
    """A snapshot, and who gave it, that nobody else has vouched for yet."""
    accepted: bool = False
    """The rest of its state was asked for; `state` is what has come so far."""
    state: bytearray = msgspec.field(default_factory=bytearray)
    waits: int = 0
    """How often it has waited for that."""
    refused: int = 0
    """Snapshots that nobody has vouched for in time."""
    said: dict[MemberId, Any] = {}
    """The last digests of others."""
