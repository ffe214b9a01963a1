"""Partitions by network namespaces: one per process, connected by bridges. Needs root and `ip`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence


class Namespaces:
    """A namespace per process, and one for the bridges between them."""

    def __init__(self, hosts: int) -> None:
        self._prefix = f"whence{os.getpid()}"
        self._hub = f"{self._prefix}hub"
        self._hosts = range(hosts)

    @staticmethod
    def allowed() -> bool:
        """Whether this process may create namespaces."""
        if shutil.which("ip") is None:
            return False
        name = f"whence{os.getpid()}try"
        made = _quietly("netns", "add", name)
        works = made and _quietly("-n", name, "link", "add", "br0", "type", "bridge")
        if made:
            _quietly("netns", "delete", name)
        return works

    def __enter__(self) -> Namespaces:
        try:
            _ip("netns", "add", self._hub)
            for bridge in ("br0", "br1"):
                _ip("-n", self._hub, "link", "add", bridge, "type", "bridge")
                _ip("-n", self._hub, "link", "set", bridge, "up")
            for i in self._hosts:
                name = self._name(i)
                _ip("netns", "add", name)
                _ip("-n", name, "link", "set", "lo", "up")
                _ip("-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{i}", "netns", self._hub)
                _ip("-n", name, "address", "add", f"{self.address(i)}/24", "dev", "eth0")
                _ip("-n", name, "link", "set", "eth0", "up")
                _ip("-n", self._hub, "link", "set", f"port{i}", "up")
            self.heal()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for name in [self._hub, *map(self._name, self._hosts)]:
            _quietly("netns", "delete", name)

    def _name(self, host: int) -> str:
        return f"{self._prefix}h{host}"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def prefix(self, host: int) -> list[str]:
        """The command prefix that runs a program in this namespace."""
        return ["ip", "netns", "exec", self._name(host)]

    def cut(self, apart: Sequence[int]) -> None:
        """Move these to a separate bridge."""
        self._plug("br1", apart)

    def heal(self) -> None:
        """Move all to one bridge."""
        self._plug("br0", self._hosts)

    def _plug(self, bridge: str, hosts: Sequence[int]) -> None:
        for i in hosts:
            _ip("-n", self._hub, "link", "set", f"port{i}", "master", bridge)


def _ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True)


def _quietly(*args: str) -> bool:
    return subprocess.run(["ip", *args], capture_output=True, check=False).returncode == 0
