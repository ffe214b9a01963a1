"""Six scenarios in which causal broadcast typically breaks. The kit is the network.

A scenario never reads messages between nodes. It only holds, loses, repeats or reorders them, as far as the system
claims to tolerate it: without `datagrams` and `loss`, links are FIFO streams that may be slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from whence.audit.conform.system import System

Run = Callable[[System], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """A scenario, and the claims it needs."""

    name: str
    needs: tuple[str, ...]
    story: str
    """What happens."""
    breaks: str
    """The typical mistake that it finds."""
    run: Run


SCENARIOS: dict[str, Scenario] = {}
"""By name, in the order in which they are run."""


def _scenario(*needs: str, finds: str) -> Callable[[Run], Run]:
    """Adds a scenario; its docstring is the story."""

    def add(run: Run) -> Run:
        name = run.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(name, needs, " ".join((run.__doc__ or "").split()), finds, run)
        return run

    return add


async def _begin(s: System, names: list[str], *publishers: str) -> None:
    """Start these nodes. Each publisher publishes once over perfect links, so the system is ready."""
    await s.start(names)
    for name in publishers:
        await s.has(await s.publish(name, f"ready-{name}"))


@_scenario("causal", finds="a merge of clocks is forgotten, there is no order, or a time-out delivers too early")
async def triangle(s: System) -> None:
    """n1 publishes a question, n2 delivers it and publishes an answer. All messages from and to n3 are held, except
    what n2 sends it after that. n3 must not deliver the answer before the question."""
    asker, answerer, reader = s.names[:3]
    await _begin(s, s.names, asker, answerer)
    # Both directions: a reader that tells others what it has would be sent the question along with the answer.
    s.network.set("hold", s.links(dest=[reader]) + s.links(src=[reader]))
    question = await s.publish(asker, "question")
    await s.has(question, answerer)
    await s.fence([answerer])  # replies to earlier messages of the reader are held too
    if s.claims("datagrams"):  # the forwarded question stays held: only the answer passes
        s.network.set("pass", [(answerer, reader)])
    else:
        s.network.release([(answerer, reader)])
    before = s.network.handed.get((answerer, reader), 0)
    answer = await s.publish(answerer, "answer")
    await s.fence([answerer])

    def got_something() -> bool:
        return s.network.handed.get((answerer, reader), 0) > before

    if not await s.until(got_something, s.settings.hold_s / 2):  # perhaps it sends only on request
        s.network.release([(reader, answerer)])
    if not await s.until(got_something, s.settings.hold_s):
        s.notes.append(f"{answerer} sent {reader} nothing while the question was withheld: little was shown")
    if not s.settings.own_network:  # there what passed may be a part of the answer, or nothing but a sign of life
        s.network.set("hold", [(answerer, reader)])  # and requests cannot get it
    await s.fence([reader])
    if s.history.has(reader, question.value):
        s.notes.append(f"{reader} got the question along with the answer: nothing could be withheld from it")
    await s.until(lambda: s.history.has(reader, answer.value), s.settings.hold_s)
    s.network.release(s.links(dest=[reader]) + s.links(src=[reader]))
    await s.settle()


@_scenario("restart", finds="an id is used again after a restart; the state of the former life is forgotten")
async def crash_replay(s: System) -> None:
    """n1 is killed after it has published and delivered; the others go on; n1 is started again and gets all messages
    of its former life a second time. It must deliver nothing twice, get what it missed, and publish under ids
    it has not used before."""
    first, second, third = s.names[:3]
    await _begin(s, s.names, first, second, third)
    await s.has(await s.publish(first, "before-1"))
    await s.has(await s.publish(second, "before-2"))
    await s.fence()
    await s.kill(first)
    down = await s.publish(second, "while-down")
    await s.has(down, *(n for n in s.names if n != first))
    await s.start([first], join=True)
    if s.claims("datagrams"):
        s.network.replay(first)
    if s.claims("reliable"):
        await s.has(down, first)
    else:
        await s.until(lambda: s.history.has(first, down.value), s.settings.hold_s)
    await s.has(await s.publish(first, "after-1"))
    await s.publish(third, "after-2")
    await s.settle()


@_scenario(
    "late-join",
    finds="a joiner waits for ever for a past it cannot get, skips it, or sees events both in the state and again",
)
async def late_join(s: System) -> None:
    """The last node is started after some events were delivered, and while others are being published. It must start
    with all that was delivered before, and get exactly what follows: nothing twice, nothing skipped."""
    *founders, joiner = s.names
    first, second = founders[:2]
    await _begin(s, founders, first, second)
    await s.has(await s.publish(first, "early-1"))
    await s.has(await s.publish(second, "early-2"))
    s.network.set("hold", s.links(dest=[joiner]))
    await s.start([joiner], join=True)
    await s.has(await s.publish(first, "meanwhile-1"), *founders)
    others = s.links([n for n in founders if n != first], [joiner])
    s.network.release(others)
    await s.until(lambda: any(link in s.network.handed for link in others), s.settings.hold_s)
    await s.has(await s.publish(first, "meanwhile-2"), *founders)
    await s.publish(second, "meanwhile-3")
    s.network.release([(first, joiner)], newest_first=s.claims("datagrams"))
    await s.settle()
    late = await s.publish(joiner, "late-1")
    await s.has(late, first)
    await s.publish(first, "late-2")
    await s.settle()


@_scenario("datagrams", finds="duplicates are recognised for a while only, or not at all")
async def duplicate(s: System) -> None:
    """Every message between nodes arrives twice, and later all of them once more, the newest first. No event may be
    delivered twice."""
    await _begin(s, s.names, *s.names[:3])
    s.network.set("twice", s.links())
    for i, name in enumerate(s.names[:3], 1):
        await s.has(await s.publish(name, f"twice-{i}"))
    s.network.set("pass", s.links())
    for name in s.names:
        s.network.replay(name)
    await s.fence()
    await s.publish(s.names[0], "after-1")
    await s.settle()


@_scenario("reliable", "loss", finds="a loss is noticed only by what follows it")
async def tail_loss(s: System) -> None:
    """All that n1 sends when it publishes is lost, and nothing is published after it. Every node must still get the
    event."""
    sender = s.names[0]
    await _begin(s, s.names, sender)
    await s.has(await s.publish(sender, "first"))
    s.network.set("lose", s.links(src=[sender]))
    await s.publish(sender, "last")
    if not await s.until(lambda: any(s.network.lost.values()), s.settings.hold_s):
        s.notes.append(f"{sender} sent nothing after its publish: nothing was lost")
    await s.fence([sender])
    s.network.set("pass", s.links())
    await s.settle()


@_scenario(finds="clocks are merged without the events behind them; what was missed is never asked for")
async def partition_heal(s: System) -> None:
    """The nodes are cut in two, both sides publish (the smaller one as far as it can), and the cut is healed.
    Every node must get every event, in order."""
    half = len(s.names) // 2 + 1
    larger, smaller = s.names[:half], s.names[half:]
    first, second, cut_off = larger[0], larger[1], smaller[0]
    await _begin(s, s.names, first, second, cut_off)
    across = s.links(larger, smaller) + s.links(smaller, larger)
    s.network.set("lose" if s.claims("loss") else "hold", across)
    here = await s.publish(first, "larger-1")
    await s.has(here, second)
    await s.has(await s.publish(second, "larger-2"), *larger)
    # The smaller side may publish, refuse, or not answer before it hears from the others again.
    there = asyncio.create_task(s.publish(cut_off, "smaller-1"))
    try:
        await s.until(lambda: False, s.settings.hold_s)  # so that its timers expire
        s.network.release(across, newest_first=s.claims("datagrams"))
        await there
    finally:
        there.cancel()
        await asyncio.gather(there, return_exceptions=True)
    await s.settle()
    await s.publish(cut_off, "after-1")
    await s.settle()
