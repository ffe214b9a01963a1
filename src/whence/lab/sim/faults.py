"""Carries out the actions of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whence.core import ports
from whence.lab.sim import actions as act
from whence.lab.sim import hostile
from whence.lab.sim.actions import Action, describe, names_in
from whence.lab.sim.lies import Liar, lies

if TYPE_CHECKING:
    from whence.lab.sim.host import Instance
    from whence.lab.sim.world import World


COPIES_PATIENCE = 50
"""Rounds that a publisher waits for copies."""


def carry_out(world: World, action: Action) -> None:
    """Carry out an action now. An impossible one does nothing."""
    has_rows = act.PublishAction | act.Crash
    if world.sink is not None and not isinstance(action, has_rows):
        for instance in (s for name in names_in(action) for s in world.hosts[name].instances.values()):
            if instance.recorder is not None:
                instance.recorder.row("fault", world.now, reason=describe(action))
    match action:
        case act.PublishAction():
            _publish(world, action)
        case act.Crash(who=who, lasts=lasts, disk=disk):
            if world.crash(who) and lasts is not None:
                world.plan(world.now + lasts, world.start, who, disk)
        case act.StartAction(who=who, disk=disk):
            world.start(who, disk)
        case act.LeaveAction():
            _leave(world, action)
        case act.CoordinateAction():
            _want(world, action, True)
            _tell(world, action, ports.Coordinate())
        case act.ResignAction():
            _want(world, action, False)
            _tell(world, action, ports.Resign())
        case act.Found():
            _tell(world, action, ports.FoundRing())
        case act.Partition(who=side, oneway=oneway):
            others = [n for n in world.hosts if n not in side]
            _cut(world, [(a, b) for a in side for b in others], oneway, action.lasts)
        case act.Cut(src=src, dst=dst, oneway=oneway):
            _cut(world, [(src, dst)], oneway, action.lasts)
        case act.Slow():
            _slow(world, action)
        case act.ClockAction(who=who, drift=drift, jump=jump):
            host = world.hosts[who]
            host.clock.change(world.now, drift, jump)
            for instance in host.instances.values():
                world.sleep(instance)
        case act.MoveAction(entries=entries, keys=keys):
            _tell(world, action, ports.Move(entries, keys))
        case act.Hostile(who=who, cluster=cluster):
            for instance in _instances(world, who, cluster):
                hostile.attack(world, instance, action)
        case act.Lie(who=who, cluster=cluster, messages=messages):
            for instance in _instances(world, who, cluster):
                _lie(world, instance, messages)


def _instances(world: World, who: str, cluster: str) -> list[Instance]:
    """The process's members in the named cluster, or in all."""
    return [s for i, s in list(world.hosts[who].instances.items()) if cluster in ("", world.clusters[i].name)]


def _tell(world: World, action: act.OfMember, event: ports.Input) -> None:
    for instance in _instances(world, action.who, action.cluster):
        world.step(instance, event)


def _want(world: World, action: act.OfMember, wants: bool) -> None:
    """From now on, also in its next life."""
    for i, cluster in enumerate(world.clusters):
        if action.cluster in ("", cluster.name):
            world.hosts[action.who].wants[i] = wants


def _publish(world: World, action: act.PublishAction) -> None:
    instances = _instances(world, action.who, action.cluster)
    if not instances:
        world.tally.not_published["down"] += action.events
    for instance in instances:
        if not instance.member.may_publish:
            world.tally.not_published["no ticket" if instance.joined else "not joined"] += action.events
            continue
        world.tally.payloads += 1
        size = max(8, action.payload)
        number = world.tally.payloads
        payloads = tuple(b"%08x" % (number << 8 | i & 0xFF) + bytes(size - 8) for i in range(action.events))
        outs = world.step(instance, ports.Publish(payloads))
        if action.copies > 1:
            events = tuple(name for out in outs if isinstance(out, ports.Published) for name in out.frame.names())
            world.checks.counting(instance, number, events)
            patience = COPIES_PATIENCE * world.scenario.round
            world.step(instance, ports.CountCopies(number, events, action.copies, patience))


def _lie(world: World, instance: Instance, messages: int) -> None:
    """Each lie to some other member. Every second liar is careful."""
    me, cluster, hosts = instance.id, instance.cluster, list(world.hosts.values())
    invented = [f"{host.name}#{boot}" for host in hosts for boot in (1, (1 << 64) - 1)]
    liar = Liar(world.rng(f"lie/{world.now}/{me}"), [*(host.id for host in hosts), *invented, "nobody#1"])
    careful = world.scenario.names.index(instance.host.name) % 2 == 0
    for packet in lies(liar, world.clusters[cluster].name, me, messages, careful):
        others = [i for host in hosts if (i := host.instances.get(cluster)) and i is not instance]
        if others:
            world.tally.lies += 1
            world.receive_bytes(liar.rng.choice(others), me, packet)


def _leave(world: World, action: act.LeaveAction) -> None:
    host = world.hosts[action.who]
    if not host.up:
        return
    life = host.boot
    for instance in list(host.instances.values()):
        world.step(instance, ports.Leave())

    def back() -> None:
        if host.boot == life:  # a process that could not leave in time is stopped
            if host.up:
                world.stop(host)
            world.start(host.name, False)

    if action.lasts is not None:
        world.plan(world.now + action.lasts, back)


def _cut(world: World, links: list[tuple[str, str]], oneway: bool, lasts: int | None) -> None:
    network, pairs = world.network, links if oneway else links + [(b, a) for a, b in links]
    for pair in pairs:
        network.cut(*pair)
        if lasts is not None:
            world.plan(world.now + lasts, network.mend, *pair)


def _slow(world: World, action: act.Slow) -> None:
    for dst in [action.dst] if action.dst else [n for n in world.hosts if n != action.src]:
        world.network.slow(action.src, dst, action.by)
        if action.lasts is not None:
            world.plan(world.now + action.lasts, world.network.slow, action.src, dst, -action.by)
