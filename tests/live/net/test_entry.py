"""Who is let in, and who goes on alone; how long the start and the end take, in virtual time."""

from __future__ import annotations

import asyncio
import importlib.util
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import collect, enter, fast, until
from tests.ports import free_ports
from whence.errors import NotJoined

if importlib.util.find_spec("cryptography") is None:
    pytest.skip("cryptography is not installed", allow_module_level=True)

from whence.live.net import keys
from whence.live.net.entry import PEERS_EVERY
from whence.testing import MemoryNetwork

SECRET, OTHER, OPEN = {"secret": b"s" * 32}, {"secret": b"t" * 32}, {"insecure": True}

FORMS: dict[str, dict[str, Any]] = {
    "contacts alone": {},
    "a port": {"listen": True},
    "a port without memory": {"listen": True, "memory": None},
    "a memory": {"memory": "memory"},
    "a directory": {"directory": "directory"},
    "no votes": {"votes": False},
    "a port and no votes": {"listen": True, "votes": False},
    "advertised": {"listen": True, "advertise": True},
    "roles": {"listen": True, "roles": "keys/b"},
    "reliable": {"listen": True, "order": "reliable"},
    "a trace": {"listen": True, "trace": "trace"},
}
"""The forms of `join`. Paths are below the test's own; True: a free port."""
MISTAKES: dict[str, tuple[Any, Any, str, str]] = {
    "nobody": (None, SECRET, "x", "connection refused: nobody listens there"),
    "another secret": (SECRET, OTHER, "x", "its secret may be another"),
    "insecure against a secret": (SECRET, OPEN, "x", "its secret may be another"),
    "another CA": ("keys/a", "foreign/b", "x", "of another CA"),
    "another name": (SECRET, SECRET, "y", "is not in it"),
}
"""What the cluster `x` is protected by, what the joiner is, which name it gives, and what it is told."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("keys")
    for ca in ("keys", "foreign"):
        keys.init(found / ca)
        for name in ("a", "b"):
            keys.issue(found / ca, name, "publisher")
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_whoever_meets_nobody_has_not_joined(root: Path, tmp_path: Path, form: str, mistake: str) -> None:
    theirs, mine, name, told = MISTAKES[mistake]
    here, nobody = (f"127.0.0.1:{port}" for port in free_ports(2))
    options = {key: value for key, value in FORMS[form].items() if key != "listen"}
    for key in options.keys() & {"memory", "directory", "trace"}:
        options[key] = options[key] and tmp_path / options[key]
    if "advertise" in options:
        options["advertise"] = here
    if "roles" in options:
        options["roles"] = root / options["roles"]

    def protected(by: Any) -> dict[str, Any]:
        return {"tls": root / by} if isinstance(by, str) else by

    async def fails(contact: str) -> None:
        listen = here if "listen" in FORMS[form] else "127.0.0.1:0"
        with pytest.raises(NotJoined, match=told):
            async with whence.join(name, contact, listen, timeout=2.5, **options, **protected(mine)):
                pass

    if theirs is None:
        await fails(nobody)
        return
    async with whence.create("x", **protected(theirs), settings=fast()) as there:
        await fails(there.address)


async def test_members_that_went_on_alone_find_each_other(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Both voters are started again with their memory while the link between them is cut. Each goes on alone, says so,
    and keeps asking: when the link is back, the two islands are one."""
    network = MemoryNetwork()
    homes = ("127.0.0.1:7001", "127.0.0.1:7002")
    options: dict[str, Any] = {"transport": network, "settings": fast()}

    async def begin(n: int) -> tuple[Any, whence.Cluster]:
        entry = enter("two", homes[:n], homes[n], memory=tmp_path / str(n), **options)
        return entry, await entry.__aenter__()

    before = [await begin(0), await begin(1)]
    council = before[1][1]._node.member.ring.councils
    await until(lambda: len(council.now.voters) == 2, "two voters")
    await asyncio.sleep(PEERS_EVERY)
    for entry, cluster in before:
        cluster.abandon()
        await entry._close()
    network.cut(*([home] for home in homes))
    after = [await begin(0), await begin(1)]
    assert all(cluster.members() == [cluster.me] for _, cluster in after)
    assert "goes on alone with what it remembers, and keeps asking" in caplog.text
    network.heal()
    await until(lambda: all(len(cluster.members()) == 2 for _, cluster in after), "one island")
    async with after[0][1].publisher() as one, after[1][1].publisher() as two:
        await one.publish(b"one")
        await two.publish(b"two")
    for entry, cluster in after:
        assert {event.payload for event in await collect(cluster, 2)} == {b"one", b"two"}
        await entry.__aexit__(None, None, None)
