"""Who is let in, and who goes on alone; how long the start and the end take, in virtual time."""

from __future__ import annotations

import asyncio
import importlib.util
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.live.net.live import collect, enter, fast, say, until
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
    "nobody": (None, SECRET, "x", "Connection refused: nobody listens there"),
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


@pytest.mark.parametrize(
    ("form", "mistake"),
    [*((form, "nobody") for form in FORMS), *(("a directory", mistake) for mistake in MISTAKES if mistake != "nobody")],
)
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


# -- how long it takes ----------------------------------------------------------------------------------------------

WAITS = "publishing waits up to"


async def first_publish(starts: Any) -> float:
    """Seconds from the start to the first event; the member is then killed."""
    began = time.monotonic()
    cluster = await starts.__aenter__()
    async with cluster.publisher() as publisher:
        await publisher.publish(b"x")
        taken = time.monotonic() - began
        cluster.abandon()
    await starts._close()
    return taken


@pytest.mark.parametrize("protocol", ["council", "neighbours"])
@pytest.mark.parametrize("form", ["any port", "a port", "a memory", "a directory", "a host"])
async def test_who_was_never_in_the_cluster_publishes_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str, protocol: str
) -> None:
    """Nobody can be an earlier owner (rule C0). When it is killed and started again, somebody can: a voter waits for
    the vouches that it has forgotten (C9), and so does who may be known by its address; and they say so."""
    here = f"127.0.0.1:{free_ports(1)[0]}"
    options: dict[str, Any] = {**OPEN, "settings": {"ring": protocol}}
    async with whence.Host(insecure=True) as host:
        match form:
            case "a port" if protocol == "council":
                options["listen"] = here
            case "a memory" if protocol == "council":
                options["memory"] = tmp_path / "memory"
            case "a directory":
                options["directory"] = tmp_path / "directory"
            case "a host":
                options = {"host": host, "settings": {"ring": protocol}}
        assert await first_publish(whence.create("x", **options)) < 0.3
        assert WAITS not in caplog.text
        if options.keys() & {"listen", "memory", "directory", "host"}:
            assert await first_publish(whence.create("x", **options)) > 1.5
            assert caplog.text.count(WAITS) == 1


async def test_a_port_without_any_memory_may_be_known_to_others(caplog: pytest.LogCaptureFixture) -> None:
    here = f"127.0.0.1:{free_ports(1)[0]}"
    assert await first_publish(whence.create("x", here, **OPEN, memory=None)) > 2.5
    assert caplog.text.count(WAITS) == 1


@pytest.mark.parametrize("founded", [True, False])
async def test_after_a_join_it_publishes_within_a_second(founded: bool) -> None:
    """Also while the ring is being founded."""
    async with whence.create("x", **OPEN) as first:
        if founded:
            await say(first, b"1")
        for _ in range(5):
            began = time.monotonic()
            async with whence.join("x", first.address, **OPEN) as second, second.publisher() as another:
                await another.publish(b"2")
                assert time.monotonic() - began < 1
                began = time.monotonic()
            assert time.monotonic() - began < 0.3


@pytest.mark.parametrize(("members", "publish", "after"), [(2, 2, 3), (3, 3, 0.5), (3, 3, 5), (3, 0, 5), (9, 2, 5)])
async def test_all_may_leave_together(members: int, publish: int, after: float) -> None:
    """However many of them vote. None waits to be replaced by one that leaves, too."""
    network = MemoryNetwork(delay=0.001)
    async with AsyncExitStack() as stack:
        clusters = [await stack.enter_async_context(whence.create("x", transport=network))]
        for _ in range(members - 1):
            joining = whence.join("x", clusters[0].address, transport=network)
            clusters.append(await stack.enter_async_context(joining))
        for cluster in clusters[:publish]:
            await say(cluster, b"x")
        await asyncio.sleep(after)
        began = time.monotonic()
        await asyncio.gather(*(cluster.leave() for cluster in clusters))
        assert time.monotonic() - began < 0.3


@pytest.mark.parametrize("after", [0, 0.5, 5])
async def test_who_leaves_alone_is_replaced_first(after: float) -> None:
    """One after the other, the founder first; what is left goes on."""
    network = MemoryNetwork(delay=0.001)
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(whence.create("x", transport=network))
        await say(first, b"x")
        joining = [whence.join("x", first.address, transport=network) for _ in range(3)]
        clusters = [first, *[await stack.enter_async_context(each) for each in joining]]
        await asyncio.sleep(after)
        for gone, left in pairwise(clusters):
            began = time.monotonic()
            await gone.leave()
            assert time.monotonic() - began < 0.3
            async with left.publisher(timeout=3) as publisher:
                await publisher.publish(b"y")


@pytest.mark.parametrize("kept", ["memory", "directory"])
async def test_after_a_clean_stop_no_lease_has_to_run_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: str
) -> None:
    """The voter's memory says that it vouches for nobody (rule C9). After a publish it vouches again, and waits."""
    options: dict[str, Any] = {**OPEN, kept: tmp_path / kept}
    for _ in range(2):
        async with whence.create("x", **options) as cluster:
            began = time.monotonic()
            await say(cluster, b"x")
            assert time.monotonic() - began < 0.3
    assert WAITS not in caplog.text
    await first_publish(whence.create("x", **options))
    assert await first_publish(whence.create("x", **options)) > 1.5
    assert WAITS in caplog.text
