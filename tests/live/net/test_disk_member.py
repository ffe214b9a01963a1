"""A real member over a real journal, killed within any file operation while its peers go on: over all its lives its
application sees every event once, and what it published is not lost."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.core.member.net import MS, MemberNet
from tests.live.net.disks import Killed, KillingFiles, bury
from whence.core import ports
from whence.core.clock import member_id
from whence.live.net.disk import Files, Journal

OTHERS = ("m0#1", "m1#1", "m2#1")


class Outside:
    """What is not in the process `m3`, so outlives it: what its application has shown to the world."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.again: list[str] = []  # it was busy with these when it died: they may be shown again
        self.given: set[str] = set()  # in the state it began with
        self.published: list[str] = []


class Process:
    """What a runtime does for `m3`: save, then send and show."""

    def __init__(self, net: LiveNet, journal: Journal) -> None:
        self.net, self.journal = net, journal
        saved = journal.load()
        self.queue = [str(e) for d in saved.queue for e in d.frame.ids()][saved.skip :]
        self.id = member_id("m3", journal.next_boot())
        self.member = net.add(self.id, "reliable", saved.checkpoint).member

    def save(self, out: list[ports.Output]) -> None:
        delivered = [o for o in out if isinstance(o, ports.Deliver)]
        state = next((o.state for o in out if isinstance(o, ports.InstallSnapshot)), None)
        if not self.member.joined:
            return
        if state is not None:
            self.journal.processed(0, state)
        if delivered or any(isinstance(o, ports.Joined) for o in out):
            self.journal.save(self.member.checkpoint(), delivered, sync=False)
        outside = self.net.outside
        if state is not None:
            outside.given = set(state.decode().split())
        self.queue += [str(e) for d in delivered for e in d.frame.ids()]
        outside.published += [str(e) for o in out if isinstance(o, ports.Published) for e in o.frame.ids()]

    def show(self, events: int) -> None:
        """The application takes some events, and asks for the next."""
        for _ in range(min(events, len(self.queue))):
            event = self.queue.pop(0)
            self.net.outside.shown.append(event)
            try:
                self.journal.processed(1)
            except Killed:
                self.net.outside.again.append(event)
                raise


class LiveNet(MemberNet):
    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.chance, self.outside = directory, random.Random(seed), Outside()
        self.process: Process | None = None
        super().__init__(["reliable"] * 3, tickets=5, seed=seed)
        self.coordinators(0, 1, 2)

    def feed(self, name: str, input: ports.Input) -> list[ports.Output]:
        if self.process is None or name != self.process.id:
            return super().feed(name, input)
        sent = list(self.heap)
        out = super().feed(name, input)
        try:
            self.process.save(out)
        except Killed:
            self.heap = sent  # nothing of the batch has left the process
            raise
        return out

    def life(self, files: Files, rounds: int) -> bool:
        """One life of m3, of so many rounds unless it is killed; True if it was."""
        chance, killed = self.chance, False
        journal = Journal(self.directory, "c", rotate_bytes=3000, files=files)
        try:
            process = self.process = Process(self, journal)
            self.feed(process.id, ports.Start(OTHERS))
            self.feed(process.id, ports.Coordinate())
            for _ in range(rounds):
                self.run(chance.randint(20, 150) * MS)
                for name in (chance.choice(OTHERS), process.id):
                    if self.apps[name].member.may_publish:
                        self.feed(name, ports.Publish((b"x",) * chance.randint(1, 3)))
                process.show(chance.randint(0, 8))
            self.run(5000 * MS)
            process.show(10**6)
        except Killed:
            killed = True
        bury(journal)
        if self.process is not None:
            del self.apps[self.process.id]
            self.process = None
        return killed


@pytest.mark.parametrize("seed", range(10))
def test_over_all_lives_every_event_is_seen_once(tmp_path: Path, seed: int) -> None:
    net = LiveNet(tmp_path, seed)
    deaths = 0
    for _ in range(8):
        deaths += net.life(KillingFiles(net.chance.randint(1, 150), net.chance), 60)
        net.run(net.chance.randint(0, 8000) * MS)
    assert deaths >= 6
    assert not net.life(Files(), 10)
    outside, everything = net.outside, Counter(net[0].events)
    assert max(everything.values()) == 1 and Counter(net[1].events) == Counter(net[2].events) == everything
    shown = Counter(outside.shown)
    assert set(shown) | outside.given == set(everything), "none skipped"
    twice = shown - Counter(outside.given ^ set(everything))
    assert twice <= Counter(outside.again), "none twice but what it was busy with"
    assert set(outside.published) <= set(everything), "none that was sent or shown is lost"
    assert len(outside.published) > 10 and len(shown) > 100
