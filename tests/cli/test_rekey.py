"""New keys without a pause: three processes publish all the time while an operator does as docs/operations.md says."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.commands import Command, until, whence
from tests.long import few
from tests.ports import free_ports

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("needs the cryptography package", allow_module_level=True)

NAMES = ("alice", "bob", "carol")


class Machines:
    """Three nodes, each with a copy of its keys on a machine of its own; each says a number every now and then."""

    def __init__(self, tmp_path: Path, tls: bool) -> None:
        self.root, self.tls, self.at = tmp_path / "keys", tls, tmp_path
        for step in (("init",), *(("issue", name) for name in NAMES)):
            assert whence("keys", step[0], self.root, *step[1:])[0] == 0
        peers = [f"127.0.0.1:{port}" for port in free_ports(3)]
        self.contacts = [word for peer in peers for word in ("--contact", peer)]
        self.nodes = {}
        for name, peer in zip(NAMES, peers, strict=True):
            self.copy(name)
            self.nodes[name] = Command(
                *("node", "--cluster", "lobby", "--listen", peer, "--bootstrap", *self.contacts, *self.keys(name)),
                *("--order", "reliable", "--publish", "--stay", "--directory", tmp_path / name / "state"),
            )
        self.said = dict.fromkeys(NAMES, 0)
        self._over = threading.Event()
        self._talk = threading.Thread(target=self._publish, daemon=True)

    def keys(self, name: str) -> tuple[object, ...]:
        mine = self.at / name / "keys"
        return ("--tls", mine, name) if self.tls else ("--secret-file", mine / "secret.key")

    def copy(self, name: str) -> None:
        shutil.copytree(self.root / name, self.at / name / "keys", dirs_exist_ok=True)

    def renew(self, *names: str) -> None:
        """Copy the keys, and have the node read them again, one machine after the other."""
        for name in names:
            node, done = self.nodes[name], "key files were read again"
            before = sum(done in line for line in node.err)
            self.copy(name)
            node.process.send_signal(signal.SIGHUP)
            until(lambda: sum(done in line for line in list(node.err)) > before, f"{name} has read them")  # noqa: B023
            self.hear_all()

    def start(self) -> None:
        for node in self.nodes.values():
            node.notice("may publish, under ticket")
        self._talk.start()

    def _publish(self) -> None:
        while not self._over.wait(0.02):
            for name, node in self.nodes.items():
                if node.process.poll() is None:
                    self.said[name] += 1
                    node.say(f"{name}:{self.said[name]};")

    def hear_all(self, *names: str) -> None:
        """Each of these hears what each of them says from now on."""
        said = [f"{name}:{self.said[name] + 1};" for name in names or NAMES]
        until(lambda: all(self.nodes[n].heard(*said) for n in names or NAMES), "all hear all")

    def numbers(self, at: str, of: str) -> list[int]:
        return [int(line.split(":")[-1].strip(";")) for line in list(self.nodes[at].out) if f"\t{of}:" in line]

    def stop(self) -> None:
        self._over.set()
        self._talk.join()

    def end(self) -> None:
        for node in self.nodes.values():
            node.process.kill()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Callable[[bool], Machines]]:
    made: list[Machines] = []

    def make(tls: bool) -> Machines:
        made.append(Machines(tmp_path, tls))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
        one.end()


@pytest.mark.parametrize("tls", few([True, False], 1), ids=["tls", "secret"])
def test_keys_are_rotated_while_all_publish(machines: Callable[[bool], Machines], tls: bool, tmp_path: Path) -> None:
    three = machines(tls)
    three.hear_all()
    shutil.copytree(tmp_path / "alice" / "keys", tmp_path / "leaked" / "keys")
    for step in (1, 2, 3):
        code, out, err = whence("keys", "rotate", three.root)
        assert code == 0 and f"step {step} of 3" in out, err
        three.renew(*NAMES)
    three.stop()
    until(
        lambda: all(three.numbers(a, b)[-1:] == [three.said[b]] for a in NAMES for b in NAMES),
        "all is heard everywhere",
    )
    for a in NAMES:
        assert all(three.numbers(a, b) == list(range(1, three.said[b] + 1)) for b in NAMES), "nothing is lost or twice"
        # Not counted since one run beside a soak had such a line: probably the peer was reading its new keys just then.
        err = [line for line in three.nodes[a].err if "it ended the TLS handshake" not in line]
        told = [line for line in err if "is lost" in line or "refused" in line or "gone" in line]
        assert not told, "nobody lost its ticket, nobody was refused"
    joins = ("node", "--cluster", "lobby", *three.contacts, "--timeout", "3")
    leaked = three.keys("leaked")
    code, _, err = whence(*joins, *leaked[:-1], "alice") if tls else whence(*joins, *leaked)
    assert code == 2 and ("another CA" in err or "secret may be another" in err), err
    assert whence(*joins, *three.keys("bob"))[0] == 0, "with the new keys one can join"


def test_a_revoked_member_is_out_and_the_others_go_on(machines: Callable[[bool], Machines]) -> None:
    three = machines(True)
    three.hear_all()
    code, out, err = whence("keys", "revoke", three.root, "carol")
    assert code == 0 and "revoked" in out and not (three.root / "carol").exists(), err
    left = ("alice", "bob")
    for name in left:
        three.copy(name)
        three.nodes[name].process.send_signal(signal.SIGHUP)
        three.nodes[name].notice("key files were read again")
        three.nodes[name].notice("its certificate was revoked")
    three.hear_all(*left)
    mark = f"alice:{three.said['alice']};"
    three.hear_all(*left)
    assert not three.nodes["carol"].heard(mark)
    three.nodes["carol"].process.kill()
    assert whence("keys", "issue", three.root, "carol")[0] == 0, "the name can be given again"
