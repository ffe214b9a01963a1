"""A network of one's own for any system: four namespaces, and a switch in user space between them that delays, jitters,
cuts or holds *directed* links packet by packet. It works below TCP and UDP, so it knows nothing of the system.

A link never reorders: a packet leaves after all that came before it on the same directed link, whatever was changed in
between (`Wires`; tests/scorecard).

As a program it is the switch itself; commands arrive as lines on standard input:

    delay a c 50          every packet from a to c takes 50 ms
    jitter * * 20         and 0 to 20 ms more, at random
    cut a c               drop what goes from a to c
    hold a c              keep what goes from a to c until it is healed
    heal                  everything as at the start; what was held leaves, the oldest first
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import random
import select
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections import deque
from contextlib import suppress
from pathlib import Path

PLACES = ("a", "b", "c", "s")
ADDRESS = {place: f"10.77.0.{i + 1}" for i, place in enumerate(PLACES)}
Link = tuple[str, str]


class Wires:
    """What a switch does with packets: one queue for each directed link."""

    def __init__(self, rng: random.Random) -> None:
        self.passed = self.dropped = 0
        self._rng = rng
        self._queues: dict[Link, deque[tuple[float, bytes]]] = {}
        self._last: dict[Link, float] = {}
        self._heal()

    def _heal(self) -> None:
        self._delay: dict[Link, float] = {}
        self._jitter: dict[Link, float] = {}
        self._cut: set[Link] = set()
        self._held: set[Link] = set()

    def command(self, line: str) -> None:
        """Carry out one command."""
        word, *rest = line.split()
        if word == "heal":
            return self._heal()
        links = [(x, y) for x in PLACES for y in PLACES if x != y and rest[0] in ("*", x) and rest[1] in ("*", y)]
        match word:
            case "cut":
                self._cut.update(links)
            case "hold":
                self._held.update(links)
            case "delay":
                self._delay.update(dict.fromkeys(links, float(rest[2]) / 1000))
            case "jitter":
                self._jitter.update(dict.fromkeys(links, float(rest[2]) / 1000))
            case _:
                raise ValueError(f"no command {line!r}")
        return None

    def take(self, now: float, link: Link, packet: bytes) -> None:
        """A packet comes in."""
        if link in self._cut:
            self.dropped += 1
            return
        wait = self._delay.get(link, 0.0) + self._rng.random() * self._jitter.get(link, 0.0)
        at = self._last[link] = max(now + wait, self._last.get(link, 0.0))
        self._queues.setdefault(link, deque()).append((at, packet))

    def due(self, now: float) -> list[tuple[str, bytes]]:
        """The packets that leave now, with their destinations."""
        out = []
        for link, queue in self._queues.items():
            while queue and link not in self._held and queue[0][0] <= now:
                out.append((link[1], queue.popleft()[1]))
        self.passed += len(out)
        return out

    def wait(self, now: float) -> float:
        """Seconds until the next packet is due."""
        heads = [queue[0][0] for link, queue in self._queues.items() if queue and link not in self._held]
        return max(0.0, min(heads) - now) if heads else 5.0


# -- namespaces


prefix = "score"
"""Of the namespaces. `claim` makes it one's own: several scorecards can run side by side."""


def claim(what: str) -> None:
    """Namespaces of one's own, with the same names in the next call: what this one left is found then."""
    global prefix
    prefix = f"score{zlib.crc32(what.encode()):08x}"


def name(place: str) -> str:
    """Of the namespace of a place."""
    return f"{prefix}-{place}"


def enter(place: str) -> list[str]:
    """What goes before a command that is to run at a place."""
    return ["ip", "netns", "exec", name(place)]


def sh(*args: str, check: bool = True) -> str:
    """What a command prints."""
    done = subprocess.run(args, capture_output=True, text=True, timeout=20)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def make() -> None:
    """Make the namespaces, each with a TUN device."""
    unmake()
    for place in PLACES:
        sh("ip", "netns", "add", name(place))
        inside = (*enter(place), "ip")
        sh(*inside, "link", "set", "lo", "up")
        sh(*inside, "tuntap", "add", "dev", "tun0", "mode", "tun")
        sh(*inside, "addr", "add", ADDRESS[place] + "/24", "dev", "tun0")
        sh(*inside, "link", "set", "tun0", "up", "multicast", "on")
        sh(*inside, "route", "add", "224.0.0.0/4", "dev", "tun0")


def leave_nothing() -> None:
    """End whatever runs in the namespaces: also what left the sessions it was started in, as Erlang's epmd does."""
    for place in PLACES:
        for pid in sh("ip", "netns", "pids", name(place), check=False).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def unmake() -> None:
    """Remove the namespaces and all that runs in them."""
    leave_nothing()
    for place in PLACES:
        sh("ip", "netns", "del", name(place), check=False)


def _open(place: str) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{name(place)}", os.O_RDONLY)
    fd = -1
    for namespace in (there, home):  # and back: the switch itself is at no place
        if libc.setns(namespace, 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")
        if namespace == there:
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"tun0", 0x0001 | 0x1000))  # TUNSETIFF: TUN, NO_PI
        os.close(namespace)
    return fd


class Switch:
    """The wires between the TUN devices of the namespaces."""

    def __init__(self) -> None:
        self._fds = {place: _open(place) for place in PLACES}
        self._places = {fd: place for place, fd in self._fds.items()}
        self._by_ip = {bytes(map(int, ADDRESS[place].split("."))): place for place in PLACES}
        self._wires = Wires(random.Random())

    def _take(self, fd: int) -> None:
        src = self._places[fd]
        for _ in range(64):
            try:
                packet = os.read(fd, 65536)
            except OSError:
                return
            if len(packet) < 20 or packet[0] >> 4 != 4:
                continue
            dst = self._by_ip.get(packet[16:20])
            group = packet[16] >> 4 == 14 or packet[19] == 255
            for to in [dst] if dst else [place for place in PLACES if group and place != src]:
                self._wires.take(time.monotonic(), (src, to), packet)

    def run(self) -> None:
        """Until standard input ends."""
        poll = select.epoll()
        for fd in (*self._places, 0):
            poll.register(fd, select.EPOLLIN)
        os.set_blocking(0, False)
        rest = b""
        while True:
            for to, packet in self._wires.due(time.monotonic()):
                with suppress(OSError):
                    os.write(self._fds[to], packet)
            for fd, _ in poll.poll(self._wires.wait(time.monotonic())):
                if fd:
                    self._take(fd)
                    continue
                data = os.read(0, 4096)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._wires.command(line.decode())


class Network:
    """The namespaces, with the switch as a process beside them."""

    def __init__(self) -> None:
        make()
        self._switch = subprocess.Popen(
            [sys.executable, str(Path(__file__)), prefix],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._switch.stdout is not None
        if self._switch.stdout.readline() != "ready\n":
            raise RuntimeError("the switch does not start: are you root, and is there a /dev/net/tun?")

    def say(self, command: str) -> None:
        """A command for the switch."""
        assert self._switch.stdin is not None
        self._switch.stdin.write(command + "\n")
        self._switch.stdin.flush()

    def close(self) -> None:
        """End the switch, and whatever is left at the places."""
        self._switch.kill()
        self._switch.wait()
        unmake()


if __name__ == "__main__":
    prefix = sys.argv[1]
    switch = Switch()
    print("ready", flush=True)
    switch.run()
