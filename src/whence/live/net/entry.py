"""How a process gets into a cluster: its settings, its id, its disk, its trace, and whom to ask first.

With the same list of peers at every node (`bootstrap`), these rules decide who founds the cluster and who joins it:

1. A node that finds a member of the cluster among the listed peers joins it.
2. A node founds only if **every** listed peer has answered and none of them holds a ticket or is about to found. A peer
   that does not answer may be on the other side of a partition, with a ring: then only an operator may decide.
3. Of the peers that are not in the cluster yet, the one founds whose disk remembers the highest epoch; of equals the
   first in the list. So no epoch, and no event id, is used twice, even where some disks were lost.
4. Otherwise a node waits, and says for whom.
5. A council that is remembered decides (docs/ring.md, rule C0). It is lost when all its voters are listed, so each of
   them has answered, and those that still have their disk or their life are no quorum. Only then is it replaced.

Coordinators belong in the list: a coordinator that is not listed is not asked. If there is one, the founder gives way
as soon as it hears of it (docs/ring.md).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from whence.core.clock import MemberId, address_of
from whence.core.config import Config, Settings
from whence.core.member import Checkpoint, Member, with_kept
from whence.core.order import Seal
from whence.core.order.messages import TicketState
from whence.core.ports import Contracted, Meet, Start
from whence.core.recorder import Recorder
from whence.core.ring import CouncilRing
from whence.core.ring.context import Memory
from whence.core.ring.council import quorum
from whence.core.ring.messages import ERA_SHIFT, Voter
from whence.errors import DiskError, NotJoined, UsageError
from whence.files import write_whole
from whence.live.net.hello import Answer, run_of
from whence.live.net.host import Host, boot_ns
from whence.live.net.node import Node
from whence.live.net.scribe import in_thread, inline
from whence.live.net.votes import Votes, state_directory

if TYPE_CHECKING:
    from whence.audit.trace import TraceWriter
    from whence.live.net.disk import Journal, Saved


log = logging.getLogger("whence.live.net")

ASK_EVERY = 0.5
"""Seconds between two rounds of questions."""
COMPLAIN_EVERY = 10.0
"""Seconds after which a node that waits logs the reason, and then again."""


class Met(NamedTuple):
    """What came of asking the peers."""

    members: list[Answer]
    """Answers of members, to join through."""
    founds: bool
    """This node is the one to found."""
    remember: set[str]
    """Peers, by address, that are in the cluster or have a disk that was."""

    def lost(self, voters: Sequence[Voter]) -> bool:
        """This council never comes back (rule 5). Asked by the node that founds, so every listed peer has answered."""
        have = [voter.member for voter in voters if address_of(voter.member) in self.remember]
        return not quorum(voters, have)


async def meet(host: Host, cluster: str, peers: Sequence[str], epoch: int, timeout: float | None) -> Met:
    """Who of the peers is there, and whether to found. `epoch`: the highest that this node's disk remembers, -1: none.
    Raises NotJoined after `timeout` seconds; None: it waits as long as it takes."""
    if host.address not in peers:
        raise UsageError(
            f"the list of peers ({', '.join(peers)}) lacks this node, {host.address}: listen on (or advertise) the "
            "address that stands in the list"
        )
    others = [peer for peer in peers if peer != host.address]
    began = said_at = time.monotonic()
    while True:
        round_began = time.monotonic()
        answers = dict(
            zip(others, await asyncio.gather(*(host.ask(p, cluster, ASK_EVERY) for p in others)), strict=True)
        )
        members = [answer for answer in answers.values() if answer is not None and answer.member]
        why = _why_not_found(host, peers, answers, epoch)
        if members or not why:
            remember = {
                p for p, answer in answers.items() if answer is not None and (answer.member or answer.epoch >= 0)
            }
            return Met(members, not why, remember | ({host.address} if epoch >= 0 else set()))
        now = time.monotonic()
        if timeout is not None and now - began > timeout:
            raise NotJoined(f"{cluster!r} was neither joined nor founded within {timeout:g} s: {why}")
        if now - said_at > COMPLAIN_EVERY:
            said_at = now
            log.warning("%s: waiting: %s", cluster, why)
        await asyncio.sleep(max(0.05, round_began + ASK_EVERY - time.monotonic()))


def _why_not_found(host: Host, peers: Sequence[str], answers: dict[str, Answer | None], epoch: int) -> str:
    """Why this node does not found (rules 2 and 3); empty: it does."""
    reasons = {peer: host.why_unreached(peer) for peer, answer in answers.items() if answer is None}
    silent = [f"{peer} ({why})" if why else peer for peer, why in reasons.items()]
    if silent:
        return (
            f"no answer from {', '.join(silent)}. The cluster is founded when all peers are there; if one is gone for "
            "good, take it out of every list, or start one node with --create instead"
        )
    holding = [peer for peer, answer in answers.items() if answer is not None and answer.holds]
    if holding:
        return f"{', '.join(holding)} holds a ticket or is founding"
    ranks = {host.address: epoch}
    ranks |= {peer: answer.epoch for peer, answer in answers.items() if answer is not None and not answer.member}
    first = max(ranks, key=lambda peer: (ranks[peer], -peers.index(peer)))
    return "" if first == host.address else f"{first} founds it"


CONTACT_RETRY = 0.5
"""Seconds between two questions to a contact."""
KNOWN_PEERS_WAIT = 2.0
"""Seconds that a restarted founder looks for the peers of its last life."""
FOUNDING_NS = 60_000_000_000
"""More than joining and the quarantine of a founder take."""
MAX_KNOWN_PEERS = 256
PEERS_EVERY = 2.0
"""Seconds between two looks at who is there."""


@dataclass
class Entry:
    """What a join needs, and what has to be closed at its end."""

    host: Host
    config: Config
    settings: Settings
    contacts: Sequence[str]
    """`host:port` of members to ask first."""
    founder: bool
    seal: Seal | None
    peers: Sequence[str] = ()
    """The same list at every node, instead of contacts; then `founder` is decided by asking them."""
    patience: float | None = None
    """Seconds until it gives up waiting for the peers; None: never."""
    directory: str | os.PathLike[str] | None = None
    memory: str | os.PathLike[str] | None = ""
    """Where a voter's memory is kept if there is no directory; empty: in the user's state directory; None: nowhere."""
    state: Callable[[], bytes] | None = None
    restore: Callable[[bytes], None] | None = None
    trace: str | os.PathLike[str] | TraceWriter | None = None
    votes: bool = True
    """It may be asked to vote."""
    on_alert: Callable[[Any], None] | None = None
    on_contract: Callable[[Contracted], None] | None = None
    timeout: float = 10.0

    def __post_init__(self) -> None:
        self.home = None if self.directory is None else Path(self.directory)
        self.journal: Journal | None = None
        self.ballots: Votes | None = None
        """The voter's memory, where there is no directory."""
        self.remembered: Memory | None = None  # what is in it
        self.fresh = False  # this process was never in the cluster, as far as it can know (docs/ring.md, rule C0)
        self.met: Sequence[MemberId] = ()
        """Members that answered."""
        self.writer: TraceWriter | None = None
        """A trace writer of our own: to be closed."""
        self._peers: Sequence[str] = ()
        self._peers_timer: asyncio.TimerHandle | None = None
        self._seeking: asyncio.Future[None] | None = None

    def open(self) -> tuple[Node, Saved | None]:
        """The node, attached to its host but not started, and what the disk holds of its last life."""
        saved = self._load()
        remembered = self.remembered = self._remember()
        empty = remembered is None and (saved is None or saved.checkpoint is None) and not self.contacts
        kept = self.journal is not None or self.ballots is not None
        self.fresh = empty and (kept or self.host.unknown(self.config.cluster))
        me = self.host.new_id() if self.journal is None else self.host.new_id(self.journal.next_boot)
        if isinstance(self.trace, str | os.PathLike):
            # Now: a path that cannot be written is said before anybody is asked.
            self.writer = _open_trace(Path(self.trace), self.config.cluster, me)
        node = Node(
            Member(
                me,
                self.config,
                random.Random(random.SystemRandom().getrandbits(64)),
                None if saved is None or saved.checkpoint is None else with_kept(saved.checkpoint, saved.kept),
                self.seal,
                # total order needs the logs, too: the memory of a vote alone is none (docs/total.md, rule T11)
                self.journal is not None or (self.ballots is not None and not self.config.ordering.total),
                remembered,
            ),
            ship=self.host.ship,
            wanted=partial(self.host.wants_step, self.config.cluster),
            state=self.state,
            restore=self.restore,
            journal=self.journal,
            disk=inline if self.host.in_memory else in_thread,
            votes=self.ballots,
            max_events=self.settings.queue_events,
            max_bytes=self.settings.queue_bytes,
        )
        node.keys, node.awake_since = self.host.protection.options, boot_ns()  # it has heard nobody yet
        node.memory = "" if self.ballots is None or remembered is None else str(self.ballots.directory)
        if isinstance(node.member.ring, CouncilRing) and not self.votes:
            node.member.ring.abstain()
        if saved is not None:
            node.resume(saved)
            if saved.checkpoint is not None:
                node.remembers = msgspec.msgpack.decode(saved.checkpoint, type=Checkpoint).epoch
        if remembered is not None and remembered.vote is not None:
            node.remembers = remembered.vote.table.era >> ERA_SHIFT
        self.host.attach(node)
        return node, saved

    def _remember(self) -> Memory | None:
        """What the last life left as a voter, where there is no directory; from now on it is kept."""
        may_vote = self.seal is None or self.seal.can_sign
        if self.home is not None or self.config.free or self.config.ring.protocol != "council" or not may_vote:
            return None
        if self.memory is None or (self.memory == "" and not self.host.stays_put):
            return None
        try:
            self.ballots = Votes(
                Path(self.memory) if self.memory else state_directory(self.config.cluster, self.host.address)
            )
        except DiskError as error:
            if self.memory != "":
                raise
            log.warning("%s: a voter's memory is not kept, so a restart is a new voter: %s", self.config.cluster, error)
            return None
        return self.ballots.load()

    @property
    def _home(self) -> Path | None:
        """Where the peers are written down."""
        return self.home if self.ballots is None else self.ballots.directory

    def _load(self) -> Saved | None:
        if self.home is None:
            return None
        from whence.live.net.disk import Journal  # lazily: it takes memory

        self.journal = Journal(self.home, self.config.cluster)
        saved = self.journal.load()
        if saved.warning:
            log.warning("%s: %s", self.home, saved.warning)
        if saved.checkpoint is not None:
            checkpoint = msgspec.msgpack.decode(saved.checkpoint, type=Checkpoint)
            if checkpoint.order != self.config.order:
                raise UsageError(f"{self.home} is of a member in {checkpoint.order} order: join with that one")
            state = checkpoint.clock
            if state.kind != self.config.ordering.kind:
                raise UsageError(f"{self.home} is of a cluster with {state.kind}")
            if isinstance(state, TicketState) and len(state.T) != self.config.tickets:
                raise UsageError(f"{self.home} is of a cluster with {len(state.T)} tickets")
        return saved

    def _record(self, node: Node, saved: Saved | None) -> None:
        """The trace begins, under the run id of the cluster."""
        writer = self.trace if self.writer is None else self.writer
        if writer is None or isinstance(writer, str | os.PathLike):
            return
        checkpoint = None if saved is None else saved.checkpoint
        recorder = Recorder(
            writer.append,
            run=node.run,
            cluster=self.config.cluster,
            member=node.me,
            order=self.config.order,
            previous=None if checkpoint is None else msgspec.msgpack.decode(checkpoint, type=Checkpoint).me,
            resumed=checkpoint,
        )
        from whence.audit.trace import JsonlTrace, RotatingTrace

        node.trace(recorder, writer.flush if isinstance(writer, JsonlTrace | RotatingTrace) else None)

    async def start(self, node: Node, saved: Saved | None) -> None:
        """Find somebody to start from, and start."""
        force = False
        told: list[Answer] = []
        if self.peers:
            cluster = self.config.cluster
            met = await meet(self.host, cluster, self.peers, node.remembers, self.patience)
            told, self.founder = met.members, met.founds
            if self.founder:
                node.founds_until = time.monotonic_ns() + FOUNDING_NS
                voters = self._voters(saved)
                force = {address_of(v.member) for v in voters} <= {*self.peers} and met.lost(voters)
                self.fresh = self.fresh and not met.remember
        else:
            told = await self._find_contacts(saved)
        self.met = [answer.member for answer in told]
        resumes = saved is not None and saved.checkpoint is not None
        node.run = run_of((answer.run for answer in told), self.home, resumes)
        self._record(node, saved)
        node.feed(Start(tuple(self.met)))
        if self.founder:
            node.found(force, self.fresh)

    def _voters(self, saved: Saved | None) -> Sequence[Voter]:
        """The council that the disk remembers."""
        memory = self.remembered
        if saved is not None and saved.checkpoint is not None:
            memory = msgspec.msgpack.decode(saved.checkpoint, type=Checkpoint).ring
        return () if memory is None else memory.known.voters

    async def _find_contacts(self, saved: Saved | None) -> list[Answer]:
        voted = self.remembered is not None and self.remembered.vote is not None
        may_be_alone = voted or (saved is not None and saved.checkpoint is not None) or not self.contacts
        if asked := self._asked():
            patience = min(KNOWN_PEERS_WAIT, self.timeout) if may_be_alone else self.timeout
            try:
                return await find(self.host, self.config.cluster, asked, patience)
            except NotJoined as error:
                if not may_be_alone:
                    raise
                log.warning("%s; this member goes on alone with what it remembers, and keeps asking", error)
        return []

    # -- peers of the last life -----------------------------------------------------------------------------------

    def _asked(self) -> list[str]:
        """The contacts, and the addresses of the peers when they were last written down."""
        known: list[str] = []
        if self._home is not None:
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                known = msgspec.json.decode((self._home / "peers").read_bytes(), type=list[str])
        return [*dict.fromkeys((*self.contacts, *self.peers, *known))]

    def keep_peers(self, node: Node) -> None:
        """Now and then: write the peers down, for a restart without contacts; alone, ask the contacts again."""
        if node.closed:
            return
        peers = [address_of(m) for m in node.member.members()[1 : MAX_KNOWN_PEERS + 1]]
        if not peers and (asked := self._asked()) and (self._seeking is None or self._seeking.done()):
            self._seeking = asyncio.ensure_future(self._seek(node, asked))
        elif peers and self._home is not None and peers != self._peers:
            self._peers = peers
            with contextlib.suppress(OSError):  # only hints, so nothing is synced; private: where members are is secret
                write_whole(self._home / "peers", msgspec.json.encode(peers), private=True)
        self._peers_timer = asyncio.get_running_loop().call_later(PEERS_EVERY, self.keep_peers, node)

    async def _seek(self, node: Node, asked: Sequence[str]) -> None:
        with contextlib.suppress(NotJoined, UsageError):
            met = await find(self.host, self.config.cluster, asked, PEERS_EVERY)
            node.feed(Meet(tuple(answer.member for answer in met)))

    def close(self) -> None:
        for running in (self._peers_timer, self._seeking):
            if running is not None:
                running.cancel()
        if self.journal is not None:
            self.journal.close()
        if self.ballots is not None:
            self.ballots.close()
        if self.writer is not None:
            self.writer.close()


async def find(host: Host, cluster: str, contacts: Sequence[str], timeout: float) -> list[Answer]:
    """Ask the contacts, again and again, until one of them is in the cluster; then give the others a moment. Raises
    NotJoined, saying what each has answered."""
    heard: dict[str, Answer | None] = {s: None for s in contacts if s != host.address}

    async def knock(contact: str) -> None:
        while True:
            began = time.monotonic()
            answer = await host.ask(contact, cluster, CONTACT_RETRY)
            if answer is not None:
                heard[contact] = answer
                if answer.member:
                    return
            await asyncio.sleep(max(0.0, began + CONTACT_RETRY / 4 - time.monotonic()))

    tasks = [asyncio.create_task(knock(contact)) for contact in heard]
    try:
        if tasks:
            await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait(tasks, timeout=0.05)
        for task in tasks:
            if task.done():
                task.result()  # settings that cannot work together
    finally:
        for task in tasks:
            task.cancel()
    found = [answer for answer in heard.values() if answer is not None and answer.member]
    if not found:
        said = [
            f"{s}: {'is not in it' if a is not None else host.why_unreached(s) or 'no answer'}"
            for s, a in heard.items()
        ]
        answers = "; ".join(said) or "the only contact is this host"
        raise NotJoined(f"no contact of {cluster!r} within {timeout:g} s ({answers})")
    return found


def _open_trace(path: Path, cluster: str, me: MemberId) -> TraceWriter:
    from whence.audit.trace import RotatingTrace, open_trace

    if path.suffix == ".parquet":  # a node may be killed: one file would be lost as a whole
        return RotatingTrace(path)
    if path.suffix == ".jsonl":
        return open_trace(path)
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in f"{cluster}-{me}")
    return open_trace(path / f"{name}.jsonl")
