"""`python -m soak.partition`: hosts in network namespaces on a bridge, cut in two and healed, load on all the time.

The processes are told nothing: they have to find each other again by themselves. At the end the causal oracle judges
the traces, and no ticket may ever have been owned by two at the same time. Where network namespaces are not allowed
the links are cut in the transports of the processes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import whence
from soak.fleet import MS, Fleet, secret, tell
from soak.member import Task

SETTINGS: dict[str, Any] = {"ring_k": 2, "ring_round_ns": 400 * MS, "delta_ns": 100 * MS, "round_ns": 50 * MS}
SETTINGS |= {"time_to_recover": 20.0, "time_to_terminate": 2.0}
"""Short rounds, so that a cut of some seconds is one that everybody notices; recovery as patient as live."""


class Namespaces:
    """A network of its own: a namespace per host, and one that holds the bridges between them."""

    def __init__(self, hosts: int) -> None:
        self._prefix = f"whence{os.getpid()}"
        self._hub = f"{self._prefix}hub"
        self.hosts = hosts

    @staticmethod
    def allowed() -> bool:
        """Whether this process may make namespaces."""
        if shutil.which("ip") is None:
            return False
        name = f"whence{os.getpid()}try"
        made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
        works = made and _quietly("ip", "-n", name, "link", "add", "br0", "type", "bridge")
        if made:
            _quietly("ip", "netns", "delete", name)
        return works

    def __enter__(self) -> Namespaces:
        try:
            _ip("netns", "add", self._hub)
            for bridge in ("br0", "br1"):
                _ip("-n", self._hub, "link", "add", bridge, "type", "bridge")
                _ip("-n", self._hub, "link", "set", bridge, "up")
            for i in range(self.hosts):
                name = self._name(i)
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self._hub)
                _ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", self._hub, "link", "set", f"port{i}", "master", "br0")
                _ip("-n", self._hub, "link", "set", f"port{i}", "up")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in [self._hub, *map(self._name, range(self.hosts))]:
            _quietly("ip", "netns", "delete", name)

    def _name(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def prefix(self, host: int) -> list[str]:
        """The beginning of a command that runs on this host."""
        return ["ip", "netns", "exec", self._name(host)]

    def plug(self, bridge: str, hosts: Sequence[int]) -> None:
        """Put these hosts on this bridge: `br0` or `br1`."""
        for i in hosts:
            _ip("-n", self._hub, "link", "set", f"port{i}", "master", bridge)


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def _quietly(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Links:
    """Cuts the cluster in two, in the network or in the transports."""

    def __init__(self, fleet: Fleet, namespaces: Namespaces | None) -> None:
        self._fleet = fleet
        self._namespaces = namespaces

    async def cut(self, small: Sequence[int]) -> None:
        if self._namespaces is not None:
            self._namespaces.plug("br1", small)
            return
        for seat in self._fleet.seats:
            inside = seat.number in small
            away = [s.address for s in self._fleet.seats if (s.number in small) != inside]
            await seat.ask("cut " + " ".join(away))

    async def heal(self, small: Sequence[int]) -> None:
        if self._namespaces is not None:
            self._namespaces.plug("br0", small)
        else:
            await self._fleet.look("heal")


async def soak(
    home: Path,
    *,
    members: int = 6,
    cuts: Sequence[Sequence[int]] = (),
    seconds: float = 10.0,
    rate: float = 20.0,
    order: str = "reliable",
    namespaces: Namespaces | None = None,
    settings: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Run it: each of `cuts` are the members cut off, for `seconds`; by default the last two, the first two, and half
    of them, which leaves nobody a quorum and so nobody a ticket."""
    cuts = cuts or ((members - 2, members - 1), (0, 1), tuple(range(members // 2, members)))
    task = Task(secret=secret(), order=order, rate=rate, settings={**SETTINGS, **(settings or {})})
    fleet = Fleet(home)
    for i in range(members):
        seat = fleet.add(task, prefix=namespaces.prefix(i) if namespaces else ())
        if namespaces is not None:
            seat.task.listen = f"{namespaces.address(i)}:7000"
    links = Links(fleet, namespaces)
    noticed, merged, again = [], [], []
    try:
        await fleet.start()
        await fleet.until("one cluster", lambda looks: all(k["members"] == members for k in looks), 30.0)
        await fleet.until("tickets", lambda looks: sum(k["ticket"] is not None for k in looks) >= members - 1, 60.0)
        for small in cuts:
            await links.cut(small)
            began = time.monotonic()
            apart = False
            while time.monotonic() - began < seconds:
                await asyncio.sleep(0.2)
                apart = apart or all(look["members"] < members for look in await fleet.look())
            noticed.append(apart)
            await links.heal(small)
            began = time.monotonic()
            await fleet.until("merged unaided", lambda looks: all(k["members"] == members for k in looks), 60.0)
            merged.append(round(time.monotonic() - began, 1))
            again.append(await _publishing_again(fleet))
        await fleet.look("stop")
        still, looks = await fleet.quiet()
    finally:
        await fleet.end()
    verdict = fleet.verdict()
    return {
        **verdict,
        "ok": verdict["ok"] and still and verdict["published"] > 0,
        "cut_by": "network namespaces" if namespaces else "the transport",
        "cuts": [list(small) for small in cuts],
        "seconds_each": seconds,
        "noticed_by_all": noticed,
        "merged_after_s": merged,
        "all_publish_again_after_s": again,
        "survivors_agree": len({look["clock"] for look in looks}) == 1 and not verdict["disagreements"],
        "quiet_at_the_end": still,
    }


async def _publishing_again(fleet: Fleet) -> float:
    """Until everybody holds a ticket again, unaided: also where a cut has cost everybody theirs (docs/ring.md). The
    seconds it took."""
    began = time.monotonic()
    await fleet.until("tickets again", lambda looks: all(k["ticket"] is not None for k in looks), 90.0)
    return round(time.monotonic() - began, 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.partition", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each cut")
    parser.add_argument("--members", type=int, default=6)
    parser.add_argument("--rate", type=float, default=20.0, help="events a second of each process")
    parser.add_argument(
        "--in-transport", action="store_true", help="cut in the transport though namespaces are allowed"
    )
    parser.add_argument("--keep", type=Path, help="keep traces and journals in this directory")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    home = args.keep or Path(tempfile.mkdtemp(prefix="whence-soak-"))
    try:
        if args.in_transport or not Namespaces.allowed():
            result = whence.run(soak(home, members=args.members, seconds=args.seconds, rate=args.rate))
        else:
            with Namespaces(args.members) as namespaces:
                result = whence.run(
                    soak(home, members=args.members, seconds=args.seconds, rate=args.rate, namespaces=namespaces)
                )
    finally:
        if args.keep is None:
            shutil.rmtree(home, ignore_errors=True)
    return tell(args.json, result)


if __name__ == "__main__":
    sys.exit(main())
