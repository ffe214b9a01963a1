"""Subgroups whose servers form a causal multicast group of their own: the daisy (Baldoni et al. 1997; SURVEY 3.4).

One server per subgroup. It multicasts each global message born at home, in the order in which it delivers them, among
the servers (the **core**), and multicasts at home what it delivers from there. Any mechanism orders the core, and any
other the subgroups: none knows of the other.

When a server is gone the next view of its subgroup has another one. It joins the core and gets, from a server that is
there, what was delivered in the core and may be missing somewhere (`Saved`): first it multicasts at home what of that
its subgroup has not, then in the core what of its own subgroup's messages the core has not. Both are uniform groups, so
what a crashed server had passed on is known to all of the one or the other.

Limit: at least one server that has the core's state must survive until a new one has it too. If all crash at once the
core has to be founded anew by an operator.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from whence.errors import BadMessage, UsageError
from whence.order.survey.base import Mechanism, ProcessId
from whence.order.survey.reliable import Deliver, Install, Output, ReliableProcess, Send, View, Welcome, Wire
from whence.order.survey.subgroup import Global, GroupId, Have, Origin, Saved, Subgroup, counts_of, decode_body, have_of

CORE = -1
"""`via` of what came from the core."""


class Reported(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    """In the core: what a subgroup has delivered."""

    group: GroupId
    have: Have


class InCore(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    """At home: what has been delivered in the core."""

    have: Have


class Serves(msgspec.Struct, frozen=True, gc=False):
    """This member is the server of its subgroup now: whoever decides the core's views takes it in (`join_core`)."""


class ToServer(msgspec.Struct, frozen=True, gc=False):
    """To another server."""

    to: ProcessId
    wire: Wire


_encode = msgspec.msgpack.Encoder().encode
_saved = msgspec.msgpack.Decoder(Saved)
_in_core = msgspec.msgpack.Decoder(InCore)
_core_body = msgspec.msgpack.Decoder(Global | Reported)


class Daisy(Subgroup):
    """A member of a subgroup; one of them is its server."""

    def __init__(
        self,
        group: GroupId,
        me: ProcessId,
        mechanism: Mechanism,
        view: View | None,
        groups: Sequence[GroupId],
        uniform: bool = True,
        report_every: int = 20,
        max_log: int = 100_000,
    ) -> None:
        """`groups`: all there are. `report_every`: deliveries between two reports. Less: shorter logs, more traffic."""
        super().__init__(group, me, mechanism, view, uniform, max_log)
        self.groups = tuple(groups)
        self.report_every = report_every
        self.core: ReliableProcess | None = None
        self.in_core: dict[Origin, int] = {}
        """What was delivered in the core, as far as is known here."""
        self.core_log: list[Global] = []
        self.pushed: dict[Origin, int] = {}
        self.reported: dict[GroupId, dict[Origin, int]] = {}
        self.unreported = 0
        self._core_todo: list[Output] = []
        self._core_busy = False

    # --- inputs

    def join_core(self, number: ProcessId, mechanism: Mechanism, view: View | None, now: int) -> list[object]:
        """This member is server `number` from now on; a founder of the core is given its first view."""
        if self.core is not None:
            raise UsageError(f"member {self.me} of subgroup {self.group} is in the core already")
        self.core = ReliableProcess(number, mechanism, view, uniform=True)
        return self._offer(self.log, now) if view else []

    def install_core_view(self, view: View, now: int) -> list[object]:
        """The core's membership service says what the next view is."""
        return self._carry_out_core(self._server().install_view(view, now), now)

    def receive_core(self, sender: ProcessId, wire: Wire, now: int) -> list[object]:
        """From another server."""
        return self._carry_out_core(self._server().receive(sender, wire, now), now)

    def _server(self) -> ReliableProcess:
        if self.core is None:
            raise UsageError(f"member {self.me} of subgroup {self.group} is no server")
        return self.core

    # --- at home

    def _installed(self, view: View, now: int) -> list[object]:
        return [Serves()] if view.members[0] == self.me and self.core is None else []

    def _global(self, message: Global, now: int) -> list[object]:
        self.unreported += 1
        out = self._offer([message], now) if self.core and self.core.view else []
        if self.core and self.core.view and self.unreported >= self.report_every:
            self.unreported = 0
            out += self._tell_core(Reported(self.group, have_of(self.have)), now)
            out += self._say(InCore(have_of(self.in_core)), now)
        return out

    def _again(self, message: Global, now: int) -> list[object]:
        return []

    def _control(self, body: bytes, now: int) -> list[object]:
        for origin, n in counts_of(decode_body(_in_core, body).have).items():
            self.in_core[origin] = max(n, self.in_core.get(origin, 0))
        self._prune()
        return []

    def _needed(self, message: Global) -> bool:
        return message.group == self.group and message.number > self.in_core.get(message.origin, 0)

    # --- in the core

    def _offer(self, messages: list[Global], now: int) -> list[object]:
        """Multicast in the core what was born here and is not there yet."""
        out: list[object] = []
        for message in list(messages):
            if message.group == self.group and message.number > self.in_core.get(message.origin, 0):
                out += self._tell_core(message, now)
        return out

    def _tell_core(self, what: Global | Reported, now: int) -> list[object]:
        return self._carry_out_core(self._server().multicast(_encode(what), now), now)

    def _carry_out_core(self, outputs: list[Output], now: int) -> list[object]:
        self._core_todo += outputs
        if self._core_busy:
            return []
        self._core_busy, out = True, list[object]()
        try:
            while self._core_todo:
                out += self._carry_out_core_one(self._core_todo.pop(0), now)
        finally:
            self._core_busy = False
        return out

    def _carry_out_core_one(self, output: Output, now: int) -> list[object]:
        match output:
            case Send(to, Welcome() as welcome):
                saved = Saved(have_of(self.in_core), tuple(self.core_log))
                return [ToServer(to, msgspec.structs.replace(welcome, application=_encode(saved)))]
            case Send(to, wire):
                return [ToServer(to, wire)]
            case Install(_, _, application):
                return self._catch_up(decode_body(_saved, application), now) if application else []
            case Deliver(message):
                try:
                    what = decode_body(_core_body, message.body)
                except BadMessage:  # all servers refuse it alike
                    self.stats.refused += 1
                    return []
                if isinstance(what, Reported):
                    self._learn(what)
                    return []
                return self._from_core(what, now)

    def _catch_up(self, saved: Saved, now: int) -> list[object]:
        out: list[object] = []
        self.in_core, self.core_log = counts_of(saved.have), list(saved.log)
        for message in saved.log:
            out += self._push(message, now)
        return out + self._offer(self.log, now)

    def _from_core(self, message: Global, now: int) -> list[object]:
        if message.number <= self.in_core.get(message.origin, 0):
            return []  # a new server said again what the old one had said
        self.in_core[message.origin] = message.number
        self.core_log.append(message)
        if len(self.core_log) > self.max_log:
            del self.core_log[0]
            self.stats.log_dropped += 1
        return self._push(message, now)

    def _push(self, message: Global, now: int) -> list[object]:
        """Multicast at home what comes from elsewhere and is not there yet."""
        known = max(self.have.get(message.origin, 0), self.pushed.get(message.origin, 0))
        if message.group == self.group or message.number <= known:
            return []
        self.pushed[message.origin] = message.number
        self.stats.remulticast += 1
        return self._say(msgspec.structs.replace(message, via=CORE), now)

    def _learn(self, report: Reported) -> None:
        has = self.reported.setdefault(report.group, {})
        for origin, n in counts_of(report.have).items():
            has[origin] = max(n, has.get(origin, 0))
        others = [self.reported.get(group, {}) for group in self.groups]
        self.core_log = [m for m in self.core_log if any(h.get(m.origin, 0) < m.number for h in others)]
