"""One system under one setting: processes, the warm-up, the fault, the wait for what still comes."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from scorecard.logs import ROLES, counted, delay_ms, per_s, read, rows
from scorecard.servers import JS, ROOT
from scorecard.switch import ADDRESS, Network
from scorecard.systems import System

from scorecard import switch
from whence.audit.trace import open_trace

SETTINGS = {
    "plain": "no fault; as fast as loopback",
    "slow": "50 ms more on the one directed link a->c (one server: s->c)",
    "cut": "a and c cannot talk for 1 s (one server: s and c); all other links are good",
    "held": "a->c is held until C reports the answer, or 2 s are over; ten questions, one at a time",
    "reconnect": "C closes its connection and opens a new one, once",
    "bulk": "no fault; A asks ten times as many, as fast as it can",
    "jitter": "every directed link 0 to 10 ms at random for each packet",
    "pause": "SIGSTOP for 0.4 s of the server (or peer) of A, twice",
    "stall": "C's handler blocks once for 2 s",
}
RUNS = {"plain": 3, "slow": 2, "cut": 2, "held": 1, "reconnect": 1, "bulk": 1}
"""The settings of a scorecard, and how many runs each has."""
PLACE = {"A": "a", "B": "b", "C": "c"}
BULK_S = 60.0
"""So long C may need for all of `bulk`."""
TRIALS, PATIENT, HOLD_S, LONG_S = 10, 3, 2.0, 10.0
"""Questions of `held`; after so many that waited for HOLD_S one more is held for LONG_S, and that is the last."""


class Child:
    """A process at a place, and all that it starts."""

    def __init__(self, place: str, argv: list[str], log: Path, env: dict[str, str], end: int = signal.SIGTERM) -> None:
        self._again = place, argv, log, env
        self._end = end
        self.start()

    def start(self) -> None:
        """Start it, also after it has ended."""
        place, argv, log, env = self._again
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                ["nice", "-n", "5", *switch.enter(place), *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if log.name.startswith("client") else errors,
                stderr=errors,
                env={**os.environ, **env},
                cwd=ROOT,
                start_new_session=True,
            )

    def say(self, line: str) -> None:
        """A line for its standard input; it may be gone."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def hear(self, word: str, within_s: float) -> bool:
        """Wait for this line of its standard output."""
        end = time.monotonic() + within_s
        assert self.process.stdout is not None
        while time.monotonic() < end and self.process.poll() is None:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                line = self.process.stdout.readline()
                if line.decode().strip() == word:
                    return True
                if not line:
                    return False
        return False

    def stop(self) -> None:
        """End it: by the signal that it is used to, then by force."""
        for sign, wait in ((self._end, 8), (signal.SIGKILL, 3)):
            if self.process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self.process.pid, sign)  # the session that was started for it
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(wait)

    def signal(self, sign: int) -> None:
        """To the process and all that it started."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        family = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, sign)


class Stage:
    """A system with its servers, at the places of a network."""

    def __init__(self, network: Network, system: System, folder: Path) -> None:
        self.system, self.folder = system, folder
        self._network = network
        self._servers: dict[str, Child] = {}
        self._runs = 0

    def up(self) -> None:
        """Start the servers, and wait until they listen."""
        system, servers = self.system, self.system.servers(self.folder) if self.system.servers else []
        for server in servers:
            log = self.folder / f"server-{server.place}.txt"
            self._servers[server.place] = Child(server.place, server.argv, log, server.env, server.stop)
            if server.place == "s":
                listening(server.place, server.port)
        for server in servers:
            if server.port:
                listening(server.place, server.port)
        if servers:
            time.sleep(1.0 if any(server.port for server in servers) else 4.0)
        if system.after is not None:
            system.after(self.folder)

    def down(self) -> None:
        """End the servers."""
        for server in self._servers.values():
            server.stop()
        switch.leave_nothing()

    def run(self, layout: str, setting: str, number: int, trace: Path) -> dict[str, Any]:
        """One run; its trace is written. What is remembered beside it."""
        self._runs += 1
        name = f"{layout}-{setting}-{number}"
        folder = self.folder / f"{name}-{self._runs}"
        folder.mkdir(parents=True)
        clients: dict[str, Child] = {}
        began, more = time.monotonic(), {}
        try:
            self._clients(layout, folder, clients)
            self._warm(folder, clients)
            if setting == "held":
                more = self._held(folder, clients)
            else:
                self._faults(setting, folder, clients)
        finally:
            self._network.say("heal")
            for client in clients.values():
                client.say("quit")
            for client in clients.values():
                with suppress(subprocess.TimeoutExpired):
                    client.process.wait(3)
                client.stop()
        found = rows(folder, f"{self.system.key}/{name}")
        trace.unlink(missing_ok=True)
        with open_trace(trace) as file:
            file.append_many(found)
        errors = sum(line.kind in ("err", "fail") for role in ROLES for line in read(folder / f"{role}.log"))
        return {
            "layout": layout,
            "setting": setting,
            "run": number,
            **counted(found),
            "delay_ms": delay_ms(found),
            "per_s": per_s(found),
            "errors": errors,
            "load": round(os.getloadavg()[0], 1),
            "seconds": round(time.monotonic() - began, 1),
            **more,
        }

    def _clients(self, layout: str, folder: Path, out: dict[str, Child]) -> None:
        for role, place in PLACE.items():
            argv, env = command(self.system, role, layout, folder, f"{os.getpid()}{self._runs}")
            out[role] = Child(place, argv, folder / f"client-{role}.txt", env)
            if self.system.one_by_one:
                self._ready(role, out[role], folder)
        for role, child in out.items():
            if not self.system.one_by_one:
                self._ready(role, child, folder)

    @staticmethod
    def _ready(role: str, child: Child, folder: Path) -> None:
        if not child.hear("ready", 40):
            said = (folder / f"client-{role}.txt").read_text(errors="replace")[-500:]
            raise RuntimeError(f"client {role} is not ready: {said}")

    @staticmethod
    def _warm(folder: Path, clients: dict[str, Child]) -> None:
        """Until B and C have heard A, and C has heard B."""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            clients["A"].say("warm")
            clients["B"].say("warm")
            time.sleep(0.25)
            at_b, at_c = heard(folder, "B"), heard(folder, "C")
            if {v[:2] for v in at_c} >= {"wA", "wB"} and any(v[:2] == "wA" for v in at_b):
                time.sleep(0.5)
                return
        raise RuntimeError("warm-up: C or B hears nothing")

    def _faults(self, setting: str, folder: Path, clients: dict[str, Child]) -> None:
        """All questions at the system's rate, with the fault among them."""
        system, far = self.system, self.system.slow_from or ("s" if self.system.single else "a")
        if setting == "slow":
            self._network.say(f"delay {far} c 50")
        elif setting == "jitter":
            self._network.say("jitter * * 10")
        many = setting == "bulk"
        count, rate = (10 * system.count, 1e6) if many else (system.count, system.rate)
        clients["A"].say(f"ask 0 {count} {rate}")
        start, span = time.monotonic(), count / rate
        target = self._servers.get("s" if system.single else "a") or clients["A"]
        for when, step in plan(setting, span):
            time.sleep(max(0.0, start + when - time.monotonic()))
            if step == "cut":
                self._network.say(f"cut {far} c")
                self._network.say(f"cut c {far}")
            elif step == "heal":
                self._network.say("heal")
            elif step in ("stop", "cont"):
                target.signal(signal.SIGSTOP if step == "stop" else signal.SIGCONT)
            elif step == "reconnect":
                clients["C"].say("reconnect")
            elif step == "stall":
                clients["C"].say("stall 2")
        clients["A"].hear("done", max(5.0, 40 - (time.monotonic() - start)))
        self._drain(folder, 2 * count, BULK_S if many else 20)

    def _drain(self, folder: Path, want: int, within_s: float) -> None:
        """Until C has everything, or nothing new for as long as the system may need."""
        end, last, since = time.monotonic() + within_s + self.system.patience, -1, time.monotonic()
        while time.monotonic() < end:
            n = sum(value[0] in "qr" for value in set(heard(folder, "C")))
            if n >= want:
                time.sleep(0.3)
                return
            if n != last:
                last, since = n, time.monotonic()
            elif time.monotonic() - since > self.system.patience:
                return
            time.sleep(0.2)

    def _held(self, folder: Path, clients: dict[str, Child]) -> dict[str, Any]:
        """One question at a time, kept from C until it reports the answer. What C has delivered is read in its log
        while the link is still held, so no clock is needed."""
        far = self.system.slow_from or ("s" if self.system.single else "a")
        took: list[float] = []
        waited, longest = 0, 0.0
        for n in range(TRIALS):
            limit = LONG_S if waited >= PATIENT else HOLD_S
            self._network.say(f"hold {far} c")
            began = time.monotonic()
            clients["A"].say(f"ask {n} 1 100")
            if until(lambda n=n: f"r{n}" in heard(folder, "C"), limit):  # type: ignore[misc]
                took.append(round((time.monotonic() - began) * 1000, 1))
            else:
                waited, longest = waited + 1, limit
            self._network.say("heal")
            until(lambda n=n: {f"q{n}", f"r{n}"} <= set(heard(folder, "C")), self.system.patience)  # type: ignore[misc]
            if limit == LONG_S:
                break
        return {"reported_ms": sorted(took)[len(took) // 2] if took else None, "waited": waited, "held_s": longest}


def until(done: Any, within_s: float) -> bool:
    """Wait for a condition."""
    end = time.monotonic() + within_s
    while not (ok := done()) and time.monotonic() < end:
        time.sleep(0.01)
    return bool(ok)


def heard(folder: Path, role: str) -> list[str]:
    """What a client has delivered by now."""
    return [line.value for line in read(folder / f"{role}.log") if line.kind == "dlv"]


def plan(setting: str, span: float) -> list[tuple[float, str]]:
    """(second, step)"""
    return {
        "cut": [(0.25 * span, "cut"), (0.25 * span + 1.0, "heal")],
        "pause": [(0.2 * span, "stop"), (0.2 * span + 0.4, "cont"), (0.6 * span, "stop"), (0.6 * span + 0.4, "cont")],
        "reconnect": [(0.33 * span, "reconnect")],
        "stall": [(0.33 * span, "stall")],
    }.get(setting, [])


def listening(place: str, port: int, within_s: float = 60) -> None:
    """Wait until something listens there."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        out = switch.sh(*switch.enter(place), "ss", "-ltn", check=False)
        if any(f"{host}:{port} " in out for host in (ADDRESS[place], "*", "0.0.0.0")):
            return
        time.sleep(0.1)
    raise RuntimeError(f"nothing listens on port {port} at {place}")


def command(system: System, role: str, layout: str, folder: Path, suffix: str) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a client."""
    place, log = PLACE[role], str(folder / f"{role}.log")
    here, others = ADDRESS[place], [ADDRESS[p] for r, p in PLACE.items() if r != role]
    if system.client == "erl":
        ebin = compiled(["erlc", "-o"], "mesh.erl", "mesh.beam")
        argv = ["erl", "-noinput", "-name", f"n@{here}", "-setcookie", "score", "-pa", str(ebin), "+S", "1:1", "-run"]
        return [*argv, "mesh", "main", role, log, *[f"n@{x}" for x in others]], {"HOME": str(folder)}
    if system.client == "jgroups":
        jar = "/usr/share/java/jgroups.jar"
        classes = compiled(["javac", "-cp", jar, "-d"], "JGroups.java", "JGroups.class")
        argv = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true", "-cp"]
        return [*argv, f"{jar}:{classes}", "JGroups", role, log, here, str(system.opt["order"]), *others], {}
    cfg = {
        "system": system.adapter,
        "role": role,
        "log": log,
        "layout": layout,
        "home": ADDRESS["s" if system.single else place],
        "here": here,
        "peers": {r: ADDRESS[p] for r, p in PLACE.items()},
        "opt": system.opt,
        "suffix": suffix,
    }
    env = {}
    if system.adapter == "dds":
        peers = "".join(f'<Peer Address="{x}"/>' for x in (here, *others))
        env["CYCLONEDDS_URI"] = (
            f'<CycloneDDS><Domain><General><Interfaces><NetworkInterface address="{here}"/></Interfaces>'
            "<AllowMulticast>false</AllowMulticast></General><Discovery><ParticipantIndex>auto</ParticipantIndex>"
            f"<MaxAutoParticipantIndex>20</MaxAutoParticipantIndex><Peers>{peers}</Peers></Discovery></Domain></CycloneDDS>"
        )
    if system.client.startswith("js:"):
        return ["node", str(JS / system.client[3:]), json.dumps(cfg)], env
    return [sys.executable, "-m", "scorecard.client", json.dumps(cfg)], env


def compiled(tool: list[str], source: str, made: str) -> Path:
    """A folder with what this source is compiled to."""
    folder = ROOT / "build" / "scorecard"
    folder.mkdir(parents=True, exist_ok=True)
    path = ROOT / "scorecard" / source
    if not (folder / made).exists() or (folder / made).stat().st_mtime < path.stat().st_mtime:
        subprocess.run([*tool, str(folder), str(path)], check=True)
    return folder
