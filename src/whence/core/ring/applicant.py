"""The way to a ticket: find a coordinator, ask it, and after a refusal or a loss ask the next (CCC11 section 4.1).

"The selection by p could take the coordinator of a ticket chosen uniformly at random from the set of available
tickets." Coordinators are known from the news, from a snapshot and from REJECTs, which name those that the rejecter
knows. Without any, ask any members of the view; they reject with such a list.

Rule 14: CJOIN carries a nonce. A grant that is no longer waited for is declined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from whence.core.clock import MemberId
from whence.core.ring.context import Context, Timer
from whence.core.ring.interface import Lost, Rejected, Released, State
from whence.core.ring.messages import AckCJoin, CJoin, Decline, Holder, Reject, Tenure

BUSY = "busy"
"""The reason of a REJECT by a coordinator that will serve CJOINs again soon."""


class Applicant:
    """One request for a ticket at a time, and hints where to ask; all hints may be wrong."""

    MAX_CONTACTS = 16
    MAX_NEVER = 16  # holders remembered as granted and never owned

    def __init__(self, ctx: Context, answer_ns: int | None) -> None:
        self.ctx = ctx
        self.answer_ns = answer_ns
        """How long to wait for an answer; None: one always comes."""
        self.hints: dict[int, MemberId] = {}
        self.members: list[MemberId] = []
        self.tried: list[MemberId] = []
        self.epoch_ends = True
        """A higher epoch ends all tenures of a lower one. Not with a council: a claim under it may have failed."""
        self.asked: tuple[int, MemberId] | None = None
        """Nonce and receiver of the CJOIN that waits for its answer."""
        self.asked_at = 0
        self.joined_by = 0
        """The nonce of the CJOIN that led to the present tenure."""
        self.never: dict[Holder, None] = {}
        """What was granted to this process and declined, so never owned."""
        self.when_waiting: list[Callable[[], None]] = []
        """What other parts do when an attempt has failed and the next one is planned."""
        ctx.when_seated.append(self._seated)

    def _seated(self) -> None:
        self.tried = []

    # --- hints ---

    def learn(self, coordinators: Mapping[int, MemberId]) -> None:
        for ticket, member in coordinators.items():
            if 0 <= ticket < self.ctx.config.tickets:
                self.hints[ticket] = member

    def contacts(self, members: Sequence[MemberId]) -> None:
        self.members = [m for m in members if m != self.ctx.me][: self.MAX_CONTACTS]

    def _redirected(self, known: Iterable[tuple[int, MemberId]], by_owner: bool) -> None:
        """A REJECT names coordinators; what a coordinator says replaces all hints."""
        if by_owner:
            self.hints = {}
        self.learn(dict(known))

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
        self.ctx.send(member, CJoin(self.asked[0], wish))
        if self.answer_ns is not None:
            self.ctx.after(self.answer_ns, Timer.ANSWER)

    def later(self, swept: bool = False) -> None:
        """Ask the next one after a pause, which is longer when everybody was asked in vain."""
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

    def on_reject(self, sender: MemberId, m: Reject) -> None:
        self.ctx.table.saw(m.era)
        self._redirected(m.known, m.owner)
        if self.ctx.state is State.JOINING and self.asked == (m.nonce, sender):
            if m.reason == BUSY:  # it will serve soon: ask it again like one who was not asked yet
                self.tried = [member for member in self.tried if member != sender]
            self._rejected(m.reason)

    def accepts(self, sender: MemberId, m: AckCJoin) -> bool:
        """Whether to take what is granted; else it is declined."""
        ctx = self.ctx
        if ctx.addressed(m.yours):
            return False  # a copy of the grant that was taken
        if ctx.state is not State.JOINING or self.asked != (m.nonce, sender):
            self.decline(sender, m.nonce, m.yours)
            return False
        ctx.stop(Timer.ANSWER)
        self.asked = None
        ctx.table.merge(m.rows)
        granted = Holder(ctx.me, *m.yours)
        ctx.table.note(granted)
        if m.yours in ctx.done or ctx.table.over(granted) or self._older_ring(granted):
            self.decline(sender, m.nonce, m.yours)
            self.later()
            return False
        self.joined_by = m.nonce
        return True

    def _older_ring(self, granted: Holder) -> bool:
        return self.epoch_ends and self.ctx.table.epoch > granted.epoch

    def decline(self, to: MemberId, nonce: int, tenure: Tenure) -> None:
        self.ctx.finish(tenure)
        self.never[Holder(self.ctx.me, *tenure)] = None
        while len(self.never) > self.MAX_NEVER:
            del self.never[next(iter(self.never))]
        self.ctx.send(to, Decline(nonce, tenure))

    # --- the end of a tenure: apply for the next ---

    def lose(self, reason: str) -> None:
        self.ctx.say(Lost(*self.ctx.vacate(), reason))
        self.later()

    def released(self) -> None:
        self.ctx.say(Released(*self.ctx.vacate()))
        self.later()
