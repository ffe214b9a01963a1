"""The files in deploy/ start a cluster: what the unit and the compose file say is started as processes here, with their
addresses and directories replaced by this machine's. Three coordinators stay three, and a rolling restart ends."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template

import pytest

from tests.cli.commands import LIMIT, until
from tests.ports import free_ports
from whence.live.metrics import ask
from whence.live.net import keys

DEPLOY = Path(__file__).parents[2] / "deploy"


class Service:
    """A process as a service manager starts it: standard input is /dev/null."""

    def __init__(self, command: list[str], metrics: str) -> None:
        self.command = command
        self.metrics = metrics
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "whence", *self.command]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]

    def figure(self, name: str) -> float | None:
        assert self.process.poll() is None, self.process.stderr.read() if self.process.stderr else ""
        try:
            _, text = asyncio.run(ask(self.metrics, "/metrics"))
        except (OSError, TimeoutError):
            return None
        return float(re.findall(rf"^{name}(?:{{\S+)? (\S+)$", text, re.M)[0])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=LIMIT)
        return self.process.returncode


@pytest.fixture
def services() -> Iterator[list[Service]]:
    started: list[Service] = []
    yield started
    for service in started:
        service.process.kill()
        service.process.communicate()


def settings(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def unit(tmp_path: Path) -> list[tuple[list[str], str]]:
    """The ExecStart of deploy/whence@.service on three machines, each with its own lobby.env."""
    keys.init(tmp_path / "keys")
    said = settings(DEPLOY / "whence@.service")
    assert said["StandardInput"] == "null" and said["EnvironmentFile"] == "/etc/whence/%i.env"
    line = said["ExecStart"].replace("%i", "lobby")
    numbers = free_ports(6)
    peers = [f"127.0.0.1:{port}" for port in numbers[:3]]
    out = []
    for number, peer in enumerate(peers):
        own = {
            "WHENCE_NAME": f"node{number}",
            "WHENCE_LISTEN": peer,
            "WHENCE_CONTACTS": " ".join(f"--contact {peer}" for peer in peers),
            "WHENCE_METRICS": f"127.0.0.1:{numbers[3 + number]}",
        }
        assert own.keys() == settings(DEPLOY / "lobby.env").keys()
        keys.issue(tmp_path / "keys", own["WHENCE_NAME"])
        words = shlex.split(Template(line).substitute(own))
        places = {"/etc/whence/keys": tmp_path / "keys", "/var/lib/whence/lobby": tmp_path / f"state{number}"}
        words = [str(places.get(word, word)) for word in words]
        assert words[0] == "/usr/local/bin/whence"
        out.append((words[1:], own["WHENCE_METRICS"]))
    return out


def compose(tmp_path: Path) -> list[tuple[list[str], str]]:
    """The commands of deploy/compose.yaml; names of containers become addresses here."""
    keys.init(tmp_path / "keys")
    text = (DEPLOY / "compose.yaml").read_text()
    commands = dict(re.findall(r"^  (node\d):\n    <<: \*node\n    command: (.+)$", text, re.M))
    assert list(commands) == ["node1", "node2", "node3"] and "file: ../keys/secret.key" in text
    numbers = free_ports(6)
    out = []
    for number, (name, line) in enumerate(commands.items()):
        metrics = f"127.0.0.1:{numbers[3 + number]}"
        line = line.replace("0.0.0.0:7001", f"{name}:7001").replace("0.0.0.0:9464", metrics)
        for other in range(3):
            line = line.replace(f"node{other + 1}:7001", f"127.0.0.1:{numbers[other]}")
        line = line.replace("/run/secrets/lobby", str(tmp_path / "keys" / "secret.key"))
        line = line.replace("/state/lobby", str(tmp_path / name))
        out.append((shlex.split(line), metrics))
    return out


@pytest.mark.parametrize("file", [unit, compose])
def test_three_services_are_three_coordinators(file: object, services: list[Service], tmp_path: Path) -> None:
    assert callable(file)
    services += [Service(command, metrics) for command, metrics in file(tmp_path)]
    for service in services:
        until(lambda s=service: s.figure("whence_may_publish") == 1, "a ticket")
        until(lambda s=service: s.figure("whence_tickets_taken") == 3, "three coordinators")
    again = services[0]  # a rolling restart: SIGTERM, start, wait until it may publish
    assert again.stop() == 0
    again.start()
    until(lambda: again.figure("whence_may_publish") == 1, "a ticket after the restart")
    assert again.figure("whence_healthy") == 1
    assert [service.stop() for service in services] == [0, 0, 0]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """The program that ExecStart names is not installed here: it is replaced by one that exists."""
    text = (DEPLOY / "whence@.service").read_text().replace("/usr/local/bin/whence", "/bin/true")
    path = tmp_path / "whence@lobby.service"
    path.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, timeout=LIMIT)
    told = [line for line in done.stderr.splitlines() if path.name in line or "whence" in line]
    assert not told, done.stderr


def test_the_commands_of_the_page_install_what_the_unit_wants(tmp_path: Path) -> None:
    """Run for another root and owner: without the right to make users."""
    page = (DEPLOY.parent / "docs" / "operations.md").read_text(encoding="utf-8")
    [block] = [b for b in re.findall(r"```console\n(.*?)```", page, re.S) if "useradd" in b]
    said = settings(DEPLOY / "whence@.service")
    assert f"useradd --system --home-dir /var/lib/whence --shell /usr/sbin/nologin {said['User']}\n" in block
    assert f" {said['ExecStart'].split()[0]}\n" in block and "systemctl enable --now whence@lobby" in block
    keys.init(tmp_path / "keys")
    keys.issue(tmp_path / "keys", "alice")
    (tmp_path / "alice").symlink_to(tmp_path / "keys" / "alice")
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True)
    owner = f"-o {os.getuid()} -g {os.getgid()}"
    lines = [line.replace(f"-o {said['User']} -g {said['User']}", owner) for line in block.splitlines()]
    for line in lines:
        if line.startswith("install "):
            subprocess.run(line.replace(" /etc/", f" {tmp_path}/etc/"), shell=True, check=True, cwd=tmp_path)
    installed = tmp_path / "etc" / "whence"
    assert keys.load(installed / "keys" / "alice").name == settings(installed / "lobby.env")["WHENCE_NAME"] == "alice"
    assert (
        said["EnvironmentFile"].replace("%i", "lobby") == "/etc/whence/lobby.env"
        and "/etc/whence/keys" in said["ExecStart"]
    )
    assert (tmp_path / "etc" / "systemd" / "system" / "whence@.service").is_file()
