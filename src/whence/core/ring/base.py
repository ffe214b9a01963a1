"""What every protocol of the ring has: applying for a ticket (`Applicant`), founding the ring (`Founding`), and the
frame of a step (`Ring`: time passes, something happens, the outcome is judged). `NoRing`: a cluster without tickets.

Applying (CCC11 section 4.1): "The selection by p could take the coordinator of a ticket chosen uniformly at random from
the set of available tickets." Coordinators are known from the news, from a snapshot and from REJECTs, which name those
that the rejecter knows. Without any, ask any members of the view; they reject with such a list. Rule 14: CJOIN carries
a nonce. A grant that is no longer waited for is declined.

Founding (docs/ring.md, "Bootstrap and empty core"): the first process is designated. It listens for a quarantine,
a short one where there can be no other ring (rule C0), and gives up when it hears of a living coordinator. Nobody
founds on a time-out. A higher epoch ends all tenures of a lower one. Founders that were told to found and
founders that a council agreed on use disjoint epochs (rule C6).
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import get_args

import whence.core.ring.messages as msg
from whence.core.clock import Incarnation, MemberId
from whence.core.ring.config import RingConfig
from whence.core.ring.context import (
    BUSY,
    SEATED,
    Context,
    Edge,
    Lost,
    Memory,
    Rejected,
    Released,
    RingOutput,
    State,
    Timer,
    floor_of,
)
from whence.errors import WrongKind


class Applicant:
    """One request for a ticket at a time, and hints where to ask; all hints may be wrong."""

    MAX_CONTACTS = 16

    def __init__(self, ctx: Context, answer_ns: int | None) -> None:
        self.ctx = ctx
        self.answer_ns = answer_ns  # how long to wait for an answer; None: one always comes
        self.hints: dict[int, MemberId] = {}
        self.members: list[MemberId] = []
        self.tried: list[MemberId] = []
        self.epoch_ends = True
        """A higher epoch ends all tenures of a lower one. Not with a council: a claim under it may have failed."""
        self.asked: tuple[int, MemberId] | None = None  # nonce and receiver of the CJOIN that waits for its answer
        self.asked_at = 0
        self.joined_by = 0  # the nonce of the CJOIN that led to the present tenure
        self.when_waiting: list[Callable[[], None]] = []
        """What other parts do when an attempt has failed and the next one is planned."""
        ctx.when_seated.append(self._seated)

    def _seated(self) -> None:
        self.tried = []

    # --- hints ---

    def replace_hints(self, coordinators: Mapping[int, MemberId]) -> None:
        """A quorum knows who the coordinators are: forget all others, and who has not answered."""
        self.tried, self.hints = [], {}
        self.learn(coordinators)

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        for ticket, member in coordinators.items():
            if 0 <= ticket < self.ctx.config.tickets:
                self.hints[ticket] = member

    def contacts(self, members: Sequence[MemberId]) -> None:
        self.members = [m for m in members if m != self.ctx.me][: self.MAX_CONTACTS]

    def known(self) -> dict[int, MemberId]:
        return {**self.hints, **self.ctx.table.coordinators()}

    def everybody(self) -> list[MemberId]:
        """All who might know a coordinator, coordinators first."""
        known = self.known()
        return [m for m in dict.fromkeys([*(known[t] for t in sorted(known)), *self.members]) if m != self.ctx.me]

    def choose(self) -> tuple[MemberId, int] | None:
        """Whom to ask next, and for which ticket (-1: any); None when nobody is known. Nobody is asked twice before
        everybody was asked once."""
        everybody, known = self.everybody(), self.known()
        if not any(m not in self.tried for m in everybody):
            self.tried = []
        free = [
            (m, t)
            for t in range(self.ctx.config.tickets)
            if t not in known and (m := self._coordinator(t, known)) not in self.tried and m and m != self.ctx.me
        ]
        rest = [m for m in everybody if m not in self.tried]
        if free:
            member, wish = self.ctx.rng.choice(free)
        elif rest:
            member, wish = self.ctx.rng.choice(rest), -1
        else:
            return None
        self.tried.append(member)
        return member, wish

    def _coordinator(self, ticket: int, known: Mapping[int, MemberId]) -> MemberId:
        """Whose S has the ticket: the nearest owner before it."""
        tickets = self.ctx.config.tickets
        return next((m for step in range(1, tickets) if (m := known.get((ticket + step) % tickets))), "")

    # --- asking ---

    def ask_who(self) -> None:
        """Ask everybody known whether there is a coordinator."""
        for member in self.everybody():
            self.ctx.send(member, msg.Who(self.ctx.next_nonce()))

    def coordinate(self) -> None:
        self.ctx.wanted, self.ctx.resigning = True, False
        if self.ctx.state is State.OUT:
            self.ctx.state = State.JOINING
            self.apply()

    def withdraw(self) -> None:
        self.ctx.state = State.OUT
        self.asked = None
        self.ctx.stop_all()

    def apply(self) -> None:
        """CJOIN to a coordinator, if one is known."""
        choice = self.choose()
        if choice is None:
            self.later(swept=True)
            return
        member, wish = choice
        self.asked, self.asked_at = (self.ctx.next_nonce(), member), self.ctx.now
        self.ctx.send(member, msg.CJoin(self.asked[0], wish))
        if self.answer_ns is not None:
            self.ctx.after(self.answer_ns, Timer.ANSWER)

    def later(self, swept: bool = False) -> None:
        """Ask the next one after a pause, which is longer when nobody has granted a ticket."""
        ctx = self.ctx
        self.asked = None
        ctx.stop(Timer.ANSWER)
        ctx.state = State.JOINING if ctx.wanted and not ctx.resigning else State.OUT
        if ctx.state is State.JOINING:
            pause = ctx.rng.uniform(1, 2) if swept else ctx.rng.uniform(0.1, 0.6)
            ctx.after(int(ctx.config.round_ns * pause), Timer.APPLY)
            for act in self.when_waiting:
                act()

    def no_answer(self) -> None:
        if self.asked is not None:
            self.hints = {ticket: m for ticket, m in self.hints.items() if m != self.asked[1]}
            self._rejected("no answer")

    def _rejected(self, reason: str) -> None:
        self.ctx.say(Rejected(reason))
        self.later(swept=all(m in self.tried for m in self.everybody()))

    def on_reject(self, sender: MemberId, m: msg.Reject) -> None:
        self.ctx.table.saw(m.era)
        if m.owner:
            self.hints = {}  # what a coordinator says replaces all hints
        self.learn(dict(m.known))
        if self.ctx.state is State.JOINING and self.asked == (m.nonce, sender):
            if m.reason == BUSY:  # it will serve soon: ask it again like one who was not asked yet
                self.tried = [member for member in self.tried if member != sender]
            self._rejected(m.reason)

    def takes(self, sender: MemberId, m: msg.AckCJoin) -> bool:
        """Take what is granted, beside whoever granted it, or decline it. Returns whether it was taken."""
        ctx = self.ctx
        if ctx.addressed(m.yours):
            return False  # a copy of the grant that was taken
        if ctx.state is not State.JOINING or self.asked != (m.nonce, sender):
            self.decline(sender, m.nonce, m.yours)
            return False
        ctx.stop(Timer.ANSWER)
        self.asked = None
        ctx.table.merge(m.rows)
        granted = msg.Holder(ctx.me, *m.yours)
        ctx.table.note(granted)
        if m.yours in ctx.done or ctx.table.over(granted) or self.older_ring(granted):
            self.decline(sender, m.nonce, m.yours)
            self.later()
            return False
        self.joined_by = m.nonce
        ctx.sit(granted)
        ctx.pred, ctx.edge = msg.Holder(sender, *m.mine), Edge(m.succ, m.inherited)
        ctx.table.owns(ctx.pred)
        return True

    def older_ring(self, holder: msg.Holder) -> bool:
        """The ring was founded again since, which ended this tenure."""
        return self.epoch_ends and self.ctx.table.epoch > holder.epoch

    def decline(self, to: MemberId, nonce: int, tenure: msg.Tenure) -> None:
        self.ctx.finish(tenure)
        self.ctx.send(to, msg.Decline(nonce, tenure))

    # --- the end of a tenure: apply for the next ---

    def released(self) -> None:
        self.ctx.say(Released(*self.ctx.vacate()))
        self.later()

    def lost(self, reason: str) -> None:
        for act in self.ctx.when_lost:
            act()
        self.ctx.say(Lost(*self.ctx.vacate(), reason))
        self.later()


TOLD_EVERY = 8
"""One epoch in so many is for founders that were told to found. They stay above a ring that was founded again up to
`TOLD_EVERY - 1` times without their knowing. A larger number uses up the 65,536 epochs sooner."""


def told_epoch(seen: int) -> int:
    """The epoch of a founder that was told to found, above `seen`: 1, 9, 17, ... (rule C6)."""
    return seen + TOLD_EVERY - (seen - 1) % TOLD_EVERY


def agreed_epoch(seen: int) -> int:
    """The epoch of a founder that others agreed to, above `seen`: any other number (rule C6)."""
    return seen + 1 if seen % TOLD_EVERY else seen + 2


class Founding:
    """The designated founder's side."""

    def __init__(self, ctx: Context, applicant: Applicant) -> None:
        self.ctx = ctx
        self.applicant = applicant
        self.chosen = 0  # the epoch of the founding under way, or of the last one
        self.fresh = False  # nobody can own a ticket of an earlier ring, says who told it to found (rule C0)

    @property
    def epoch(self) -> int:
        return max(self.chosen, self.ctx.table.epoch)

    def found(self, epoch: int) -> None:
        ctx = self.ctx
        if why_not := self._why_not(epoch):
            ctx.say(Rejected(why_not, founding=True))
            return
        ctx.wanted, ctx.resigning = True, False
        self.applicant.withdraw()
        ctx.state = State.FOUNDING
        self.chosen = epoch
        first = self.fresh and epoch == 1 and not self.applicant.everybody()
        ctx.after(ctx.config.delta_ns if first else ctx.config.quarantine_ns, Timer.QUARANTINE)
        self.look()

    def _why_not(self, epoch: int) -> str:
        if self.ctx.state in SEATED:
            return "already a member of the ring"
        if epoch <= self.ctx.table.epoch:
            return f"epoch {epoch} is not above {self.ctx.table.epoch}, which was seen already"
        if epoch >= msg.MAX_EPOCH:
            return f"all {msg.MAX_EPOCH} epochs are used up: begin a cluster under another name"
        return ""

    def look(self) -> None:
        """Twice a round."""
        self.applicant.ask_who()
        self.ctx.after(self.ctx.config.round_ns // 2, Timer.LOOK)

    def heard_owner(self, member: MemberId) -> None:
        """There is a ring already."""
        if self.ctx.state is State.FOUNDING:
            self.give_up(f"{member} is a living coordinator")

    def on_reject(self, sender: MemberId, m: msg.Reject) -> None:
        if m.owner:
            self.heard_owner(sender)
        self.applicant.on_reject(sender, m)

    def on_news(self, news: msg.RingNews) -> None:
        """Who owns what, and who does no more. A founder that hears of an owner gives up."""
        ctx, table = self.ctx, self.ctx.table
        match news:
            case msg.JoinedNews(holder):
                if holder != ctx.holder:
                    table.owns(holder)
                if holder.member != ctx.me:
                    self.heard_owner(holder.member)
            case msg.GoneNews(tickets, floor, by):
                for far, ticket in enumerate(tickets, 1):
                    table.out(ticket, floor, ctx.now + ctx.config.temp_ns(far))
                table.committed(by, floor)
                self.heard_owner(by)
            case msg.ReleasedNews(holder, seq):
                table.note(holder, seq)
                table.out(holder.ticket, holder.inc + 1, ctx.now)

    def give_up(self, reason: str) -> None:
        self.ctx.stop(Timer.QUARANTINE, Timer.LOOK)
        self.ctx.say(Rejected(reason, founding=True))
        self.applicant.later()

    def quarantine_over(self) -> None:
        """The designated founder has heard of nobody; alone, it needs nobody's vouch."""
        if self.take_all(self.chosen):
            self.ctx.own()

    def take_all(self, epoch: int) -> bool:
        """All tickets are this process's, under this epoch; it sits on the first."""
        ctx = self.ctx
        self.chosen = epoch
        if epoch <= ctx.table.epoch:
            self.give_up(f"epoch {epoch} was seen elsewhere meanwhile")
            return False
        for ticket in range(ctx.config.tickets):
            ctx.table.end(ticket, floor_of(epoch << msg.ERA_SHIFT))
        ctx.sit(msg.Holder(ctx.me, 0, ctx.table.grant(0)))
        return True


HANDLERS = {
    kind: f"on_{re.sub('(?<=[a-z])(?=[A-Z])', '_', kind.__name__).lower()}" for kind in get_args(msg.RingMessage)
}
"""What the method is called that takes a message: `on_ack_coord` takes AckCoord."""


class Ring(ABC):
    """A process's part in the ring of one cluster. Pure: time comes in as `now`, chance as a generator at construction.

    Every call first lets time pass until `now`: a lease that has run out shows as `Lost` in the outputs of that very
    call. A protocol composes its parts beside the two that are here (`dispatch`), and says which timer (`_timer`) goes
    where.
    """

    def __init__(self, me: MemberId, config: RingConfig, rng: random.Random, answer_ns: int | None) -> None:
        self.ctx = Context(me, config, rng)
        self.applicant = Applicant(self.ctx, answer_ns)
        self.founding = Founding(self.ctx, self.applicant)
        self.takers: dict[type, object] = {}
        """Which part takes which message: the protocol's own class, or the first that has its handler (`dispatch`)."""
        self.implausible = 0  # messages and news ignored because they name an era that cannot be (`Table.plausible`)
        self.wake_at: int | None = None
        """When `wake` wants to be called next; None: never. Too early is harmless; too late may cost the ticket."""

    @property
    def state(self) -> State:
        return self.ctx.state

    @property
    def ticket(self) -> int | None:
        return self.ctx.holder.ticket if self.ctx.holder else None

    @property
    def inc(self) -> Incarnation | None:
        return Incarnation.unpack(self.ctx.holder.inc) if self.ctx.holder else None

    @property
    def tenure(self) -> tuple[int, int] | None:
        """The ticket and its incarnation, packed."""
        holder = self.ctx.holder
        return (holder.ticket, holder.inc) if holder else None

    @property
    def entitled(self) -> bool:
        """An owner that is not resigning, its lease valid at the last `now` it was told (rule 2)."""
        return self.owns_at(self.ctx.now) and not self.ctx.resigning

    @abstractmethod
    def owns_at(self, now: int) -> bool:
        """An owner, also a resigning one, whose lease is valid at `now`: for those who watch from outside."""

    @abstractmethod
    def steady_at(self, now: int) -> bool:
        """An owner at `now` that is neither frozen nor excluding, and whose TempRounds are over."""

    @property
    def epoch(self) -> int:
        """The highest epoch seen or used for a founding: what a founder has to remember across restarts."""
        return self.founding.epoch

    @property
    def safe_at(self) -> int:
        """Until then this process waits for leases from before its start to run out; 0: it does not."""
        return self.ctx.timers.get(Timer.QUARANTINE, 0)

    def coordinated(self) -> list[int]:
        """S_p: the own ticket and those down to the successor's; empty without a ticket."""
        return self.ctx.coordinated()

    def coordinators(self) -> dict[int, MemberId]:
        """Cview: ticket -> owner, as far as known."""
        return self.ctx.table.coordinators()

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        """Coordinators from a snapshot: hints where to ask."""
        self.applicant.learn(coordinators)

    def anchor(self, inc: int) -> None:
        """An incarnation from a snapshot or a disk: how far the ring has come at least."""
        self.ctx.table.reached(inc >> msg.ERA_SHIFT)

    def contacts(self, members: Sequence[MemberId]) -> None:
        """Some members of the view, to ask when no coordinator is known."""
        self.applicant.contacts(members)

    def published(self, seq: int) -> None:
        """The last event published under the present incarnation."""
        if self.ctx.holder is not None:
            self.ctx.seq = seq
            self.ctx.table.note(self.ctx.holder, seq)

    def start(self, now: int) -> list[RingOutput]:
        """The process takes part in the cluster from now on, whether it wants a ticket or not."""
        return []

    def retire(self, now: int) -> list[RingOutput]:
        """The process is going to leave the cluster: let others do its work in the ring. See `retired`."""
        return []

    @property
    def retired(self) -> bool:
        """The ring can do without this process."""
        return self.ctx.holder is None

    def memory(self) -> Memory | None:
        """What a disk should hold of this ring, for the next life of the process."""
        return None

    def found(self, now: int, epoch: int, force: bool = False, fresh: bool = False) -> list[RingOutput]:
        """Found the ring after a quarantine. `epoch` must be above all earlier ones. `force`: whatever is remembered
        of an earlier ring is lost for good, says an operator; `fresh`: there was none (rule C0)."""
        self.founding.fresh = fresh
        return self._step(now, lambda: self._found(epoch, force))

    def coordinate(self, now: int) -> list[RingOutput]:
        """Try to get a ticket and keep trying, also after a loss, until `resign`."""
        return self._step(now, self.applicant.coordinate)

    def resign(self, now: int) -> list[RingOutput]:
        """Stop publishing at once, and leave as soon as the predecessor takes over."""
        return self._step(now, self._resign)

    def receive(self, sender: MemberId, message: msg.RingMessage, now: int) -> list[RingOutput]:
        """A message arrived. Raises BadMessage for one that names tickets that do not exist."""
        era = msg.check_message(message, self.ctx.config.tickets)
        return self._step(now, lambda: self._receive(sender, message) if self._plausible(era) else None)

    def hear(self, news: msg.RingNews, now: int) -> list[RingOutput]:
        """News of another member arrived by PrCast: late, more than once or never."""
        era = msg.check_message(news, self.ctx.config.tickets)
        return self._step(now, lambda: self._hear(news) if self._plausible(era) else None)

    def wake(self, now: int) -> list[RingOutput]:
        """Time has passed."""
        return self._step(now, lambda: None)

    # --- what a protocol says ---

    def dispatch(self, *parts: object) -> None:
        """These parts take the messages that they have handlers for."""
        for kind, name in HANDLERS.items():
            part = next((part for part in (self, *parts) if hasattr(part, name)), None)
            if part is not None:
                self.takers[kind] = part

    def _receive(self, sender: MemberId, m: msg.RingMessage) -> None:
        """To the part that takes such messages. Another protocol's messages are ignored."""
        part = self.takers.get(type(m))
        if part is not None:
            getattr(part, HANDLERS[type(m)])(sender, m)

    def _timer(self, timer: Timer) -> None:
        """Which timer goes where; here: those of every protocol."""
        match timer:
            case Timer.QUARANTINE:
                self.founding.quarantine_over()
            case Timer.LOOK:
                self.founding.look()
            case Timer.APPLY:
                self.applicant.apply()
            case Timer.ANSWER:
                self.applicant.no_answer()
            case _:
                raise AssertionError(timer)

    @abstractmethod
    def _leave(self) -> None:
        """Begin to give up the ticket."""

    def _lease_end(self) -> int | None:
        """When the lease runs out; None: never."""
        return None

    def _found(self, epoch: int, force: bool) -> None:
        self.founding.found(epoch)

    def _hear(self, news: msg.RingNews) -> None:
        self.founding.on_news(news)

    def _resign(self) -> None:
        self.ctx.wanted, self.ctx.resigning = False, True
        if self.ctx.state in SEATED:
            self._leave()
        else:
            self.applicant.withdraw()

    # --- a step ---

    def _step(self, now: int, act: Callable[[], None]) -> list[RingOutput]:
        ctx = self.ctx
        ctx.out = []
        ctx.now = max(ctx.now, now)
        if self.wake_at is not None and self.wake_at <= ctx.now:
            self._time_passes()
        act()
        while ctx.inbox:
            inbox, ctx.inbox = ctx.inbox, []
            for message in inbox:
                self._receive(ctx.me, message)
        self._fence()
        ends = list(ctx.timers.values())
        lease = self._lease_end()
        if lease is not None:
            ends.append(lease)
        self.wake_at = min(ends, default=None)
        return ctx.out

    def _time_passes(self) -> None:
        """The lease first: whatever is due happens to a process that knows whether it is still an owner."""
        ctx = self.ctx
        lease = self._lease_end()
        if lease is not None and ctx.now >= lease:
            self.applicant.lost("lease ran out")
        for at, timer in sorted((at, timer) for timer, at in ctx.timers.items() if at <= ctx.now):
            if ctx.timers.get(timer) == at:  # an earlier one may have moved or ended it
                del ctx.timers[timer]
                self._timer(timer)

    def _fence(self) -> None:
        """Out at once when this tenure is known to be over (rules 4 and 12), or the ring was founded again."""
        holder = self.ctx.holder
        if holder is None:
            return
        if self.applicant.older_ring(holder):
            self.applicant.lost("the ring was founded again")
        elif self.ctx.table.ended(holder):
            if self.ctx.state is State.LEAVING:
                self.applicant.released()
            else:
                self.applicant.lost("excluded")

    def _plausible(self, era: int) -> bool:
        """Ignore an era that cannot be, but do not blame its sender: it may know more than this process."""
        plausible = self.ctx.table.plausible(era)
        self.implausible += not plausible
        return plausible


class NoRing(Ring):
    """A cluster without tickets: every member may publish at any time, and there is nobody to ask."""

    entitled = True

    def __init__(self, me: MemberId, config: RingConfig) -> None:
        super().__init__(me, config, random.Random(0), None)

    def owns_at(self, now: int) -> bool:
        return False

    steady_at = owns_at

    def _step(self, now: int, act: Callable[[], None]) -> list[RingOutput]:
        return []

    def receive(self, sender: MemberId, message: msg.RingMessage, now: int) -> list[RingOutput]:
        raise WrongKind("a message of the ring in a cluster without tickets")

    def hear(self, news: msg.RingNews, now: int) -> list[RingOutput]:
        raise WrongKind("news of the ring in a cluster without tickets")

    def _leave(self) -> None:
        raise AssertionError
