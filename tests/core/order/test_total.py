"""Total order under directed faults (docs/total.md): real members, and the one moment at which a rule matters. With the
rule the sequences agree and go on; without it they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.member.net import MS, MemberNet
from whence.core import ports
from whence.core.cast.messages import Gossip
from whence.core.clock import logs
from whence.core.order.messages import AckRecover, Recover
from whence.core.order.total import Merge
from whence.core.ring.logs import LogKeeper
from whence.core.ring.messages import ClosedLog, CloseLog, EndLog, Vouch

Rule = Callable[[str, str, Any], bool]
ROUND = 400 * MS
STREAM = (Gossip, AckRecover, Recover, logs.Tick, logs.LogReport, logs.LogReports)
CLOSING = (CloseLog, ClosedLog, EndLog)


class Faulty(MemberNet):
    """Members m0, m1 and m2 vote; what a rule names is lost."""

    def __init__(self, count: int = 4, owners: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        times = {"round_ns": ROUND, "ring_round_ns": ROUND, "delta_ns": ROUND // 4}
        super().__init__(["total"] * count, tickets=count, total=True, ring_k=1, **times)
        self.rules: list[Rule] = []
        for i in range(3, count):
            self[i].member.ring.abstain()  # type: ignore[attr-defined]  # a CouncilRing
        self.coordinators(*owners)
        for _ in range(40):
            self.run(ROUND)
            if len(self.voters) == 3:
                break
        self.run(2 * ROUND)

    @property
    def voters(self) -> list[int]:
        ring: Any = next(iter(self.apps.values())).member.ring
        return [int(voter.member[1]) for voter in ring.councils.now.voters]

    def feed(self, name: str, input: ports.Input) -> list[ports.Output]:
        if isinstance(input, ports.Received) and any(rule(input.sender, name, input.message) for rule in self.rules):
            return []
        return super().feed(name, input)

    def block(self, kinds: tuple[type, ...], of: Any = None, to: Any = None) -> None:
        """Messages of these kinds, from and to these, are lost until `free`."""
        of, to = ({f"m{i}#1" for i in who} if who is not None else None for who in (of, to))
        self.rules.append(
            lambda a, b, m: isinstance(m, kinds) and (of is None or a in of) and (to is None or b in to) and a != b
        )

    def free(self) -> None:
        self.rules = []

    def crash(self, i: int) -> None:
        del self.apps[f"m{i}#1"]

    def say(self, i: int, times: int = 1) -> None:
        for _ in range(times):
            if self[i].member.may_publish:
                self.publish(i)

    def settle(self, rounds: int = 12) -> None:
        """Faults are over: everybody delivers what is published now, and all sequences agree."""
        self.free()
        self.run(6 * ROUND)
        for name in self.apps:
            self.say(int(name[1]))
        self.run(rounds * ROUND)
        agree(self.sequences())
        for app in (*self.apps.values(), *self.dead):
            places = [
                o.frame.place for o in app.outputs if isinstance(o, ports.Deliver) and o.frame.key not in self.pulled
            ]
            assert places == sorted(places), "a frame came after one of a higher stamp"
        counts = {name: len(app.events) for name, app in self.apps.items()}
        assert len(set(counts.values())) == 1, f"not all go on: {counts}"
        for name, app in self.apps.items():
            own = [o.frame.names()[-1] for o in app.outputs if isinstance(o, ports.Published)]
            if own and self.apps[name].member.may_publish:
                assert own[-1] in app.events, f"{name} waits for {app.member.waits_for()}"

    def sequences(self) -> list[list[str]]:
        return [app.events for app in (*self.apps.values(), *self.dead)]

    dead: tuple[Any, ...] = ()
    pulled: tuple[Any, ...] = ()
    """Causes that are in no log."""


def agree(sequences: list[list[str]]) -> None:
    longest = max(sequences, key=len)
    for sequence in sequences:
        assert sequence == longest[: len(sequence)], "two members have different sequences"
        assert len(set(sequence)) == len(sequence)


def newcomer_that_has_heard_nothing() -> None:
    """T2: m3 gets a ticket without having heard of any event."""
    net = Faulty(4, (0, 1, 2))
    net.block(STREAM, to=(3,))
    for _ in range(8):
        for i in (0, 1, 2):
            net.say(i)
        net.run(ROUND // 5)
    net.feed("m3#1", ports.Coordinate())
    for _ in range(10):
        net.run(ROUND)
        if net[3].member.ring.entitled:
            break
    net.rules = [lambda a, b, m: b == "m3#1" and isinstance(m, Gossip)]
    for _ in range(5):
        net.say(3)
        net.say(0)
        net.run(ROUND // 5)
    net.settle()


def owner_that_nobody_has_heard() -> None:
    """T5: m3 is an owner, and its frames are under way for long."""
    net = Faulty(4, (0, 1, 2))
    net.block((*STREAM, logs.Follow), of=(3,))
    net.feed("m3#1", ports.Coordinate())
    for _ in range(10):
        net.run(ROUND)
        if net[3].member.may_publish:
            break
    net.say(3, 2)
    for _ in range(8):
        for i in (0, 1, 2):
            net.say(i)
        net.run(ROUND // 5)
    net.settle()


def last_words(held: tuple[int, ...]) -> Faulty:
    """m3 dies; of its five frames all have three, `held` and nobody else all five."""
    net = Faulty()
    net.say(3, 3)
    net.run(2 * ROUND)
    others = [i for i in range(4) if i not in held and i != 3]
    net.block((Gossip, AckRecover, logs.Tick), of=(3,), to=others)
    net.block((Gossip, AckRecover), of=held)
    net.say(3, 2)
    net.run(ROUND // 20)
    net.crash(3)
    return net


def one_copy_is_not_decided() -> None:
    """T6: only voter m2 has the last two frames, and says so; then it dies, and the others close the log without."""
    net = last_words((2,))
    net.run(ROUND // 2)
    net.dead = (net[2],)
    net.crash(2)
    net.settle()


def a_gap() -> None:
    """T3: of three frames the middle one reaches nobody before its owner dies."""
    net = Faulty()
    net.say(3)
    net.run(2 * ROUND)
    net.block((AckRecover,), of=(3,))
    net.block((Gossip,), of=(3,))
    net.say(3)
    net.run(ROUND // 10)
    net.rules.pop()
    net.say(3)
    net.run(ROUND // 20)
    net.crash(3)
    net.settle()


def a_cause_in_no_log() -> None:
    """T9: x is with m4 only, which is no voter; its owner dies, and its log is closed without it. Then m4 publishes."""
    net = Faulty(5, (0, 1, 2, 3, 4))
    net.block((Gossip, AckRecover, logs.Tick), of=(3,), to=(0, 1, 2))
    net.block((Gossip, AckRecover), of=(4,))
    net.say(3)
    net.run(ROUND // 10)
    x = next(o.frame for o in reversed(net[3].outputs) if isinstance(o, ports.Published))
    net.crash(3)
    net.run(8 * ROUND)
    assert x.names()[0] not in net[0].events + net[4].events
    net.free()
    net.say(4)
    net.pulled = (x.key,)
    net.settle()
    y = next(o.frame for o in net[4].outputs if isinstance(o, ports.Published))
    names = [x.names()[0], y.names()[0]]
    assert [name for name in net[0].events if name in names] == names, "a cause comes before its effect"


def the_dead_are_closed() -> None:
    """T8: an owner dies, and total order goes on."""
    last_words((0, 1, 2)).settle()


def an_end_that_others_have_decided() -> None:
    """T8: m2 has five and closes alone; the others have closed at three, and m2 has not heard of it."""
    net = last_words((2,))
    net.block(CLOSING, of=(2,))
    net.block(CLOSING, to=(2,))
    net.block((logs.LogReport, logs.LogReports), to=(2,))
    left_out = [o.frame for o in net[2].outputs if isinstance(o, ports.Arrived) and o.frame.first > 3]
    net.pulled = tuple(frame.key for frame in left_out)  # by what m2 publishes later
    net.run(6 * ROUND)
    for i in (0, 1):
        net.say(i)
    net.run(ROUND)
    net.settle()


SCENES = (
    newcomer_that_has_heard_nothing,
    owner_that_nobody_has_heard,
    one_copy_is_not_decided,
    a_gap,
    a_cause_in_no_log,
    the_dead_are_closed,
    an_end_that_others_have_decided,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_with_all_rules(scene: Callable[[], None]) -> None:
    scene()


# -- each rule left out: what it replaces, and the scene that shows it


def no_start(patch: pytest.MonkeyPatch) -> None:
    """T2: a vouch brings no clock."""
    patch.setattr("whence.core.ring.council.msg.Vouch", lambda *fields: Vouch(*fields[:3]))


def not_vouched(patch: pytest.MonkeyPatch) -> None:
    """T5: a tenure is in the reports only when it has published."""
    patch.setattr(LogKeeper, "vouched", lambda self, holder, seq, clock: None)


def one_is_enough(patch: pytest.MonkeyPatch) -> None:
    """T6: what one voter holds is decided."""

    def decided(self: Merge, log: Any) -> int:
        return max((n for acks in self._acks.values() for n in acks.get(log, {}).values()), default=0)

    patch.setattr(Merge, "decided", decided)


def never_closed(patch: pytest.MonkeyPatch) -> None:
    """T8: nobody closes."""
    patch.setattr(LogKeeper, "_close", lambda self, log, row: None)


def the_highest_counts(patch: pytest.MonkeyPatch) -> None:
    """T3: the highest frame in hand counts, whatever is missing before it."""
    holds = Merge.holds
    most = lambda self, log: max((f.last for f in self.store.get(log, {}).values()), default=0)  # noqa: E731
    patch.setattr(Merge, "holds", lambda self, log: max(holds(self, log), most(self, log)))


def no_pull(patch: pytest.MonkeyPatch) -> None:
    """T9: causes that are in no log are left out."""
    patch.setattr(Merge, "_causes_of", lambda self, frame, known=None: [])


LEFT_OUT = {
    "T3": (the_highest_counts, a_gap),
    "T9": (no_pull, a_cause_in_no_log),
    "T2": (no_start, newcomer_that_has_heard_nothing),
    "T5": (not_vouched, owner_that_nobody_has_heard),
    "T6": (one_is_enough, one_copy_is_not_decided),
    "T8": (never_closed, the_dead_are_closed),
}


@pytest.mark.parametrize("rule", LEFT_OUT)
def test_without_the_rule_it_fails(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out, scene = LEFT_OUT[rule]
    leave_out(monkeypatch)
    with pytest.raises(AssertionError):
        scene()
