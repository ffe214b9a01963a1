"""`whence bridge` as people and scripts use it: keys of its own for each cluster, metrics, signals, what it refuses."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence
from tests.cli.commands import LIMIT, Command, until
from whence.cli import main
from whence.cli.bridge import _options
from whence.cli.parser import parser
from whence.live.bridge import everywhere
from whence.live.bridge.envelope import FromClient, wrap
from whence.live.bridge.live import strongest
from whence.live.metrics import ask
from whence.live.net import keys


def payloads(node: Command) -> list[str]:
    """The deliveries of `whence node --json`, which knows of bridges."""
    return [json.loads(line)["payload"] for line in list(node.out)]


async def speak(cluster: str, seed: str, payload: bytes, **security: Any) -> None:
    """Publish one event for all clusters."""
    async with whence.join(cluster, [seed], **security) as joined, joined.publisher() as publisher:
        await publisher.publish(everywhere(payload))


def test_a_bridge_with_keys_of_its_own_for_each_cluster(tmp_path: Path, start: Callable[..., Command]) -> None:
    keys.init(tmp_path / "a")
    for name in ("ann", "amy", "bridge"):
        keys.issue(tmp_path / "a", name)
    keys.init(tmp_path / "b")
    secret = tmp_path / "b" / "secret.key"
    lobby = ("--cluster", "lobby", "--tls", tmp_path / "a")
    hall = ("--secret-file", secret)
    ann = start("node", *lobby, "ann", "--publish", "--json")
    bob = start("node", "--cluster", "hall", *hall, "--publish", "--json")
    addresses = [json.loads(node.notice(r".*has (created|joined) .*")[0])["address"] for node in (ann, bob)]
    bridge = start(
        *("bridge", "--json", "--directory", tmp_path / "bridge", "--probe", 0.2, "--metrics", "127.0.0.1:0"),
        *(*lobby, "bridge", "--contact", addresses[0], "--cluster", "hall", *hall, "--contact", addresses[1]),
    )
    bridge.notice("is open")
    ann.say("only here", everywhere(b"typed").decode())  # lines of a node are local, whatever they look like
    until(lambda: len(ann.out) == 2, "ann has read them")
    asyncio.run(speak("lobby", addresses[0], b"hello", tls=tmp_path / "a" / "amy"))
    until(lambda: "hello" in payloads(bob), "it has crossed")
    asyncio.run(speak("hall", addresses[1], b"hello, too", secret=keys.read_secret(secret)))
    until(lambda: "hello, too" in payloads(ann), "and back")
    assert payloads(bob) == ["hello", "hello, too"]
    assert payloads(ann) == ["only here", everywhere(b"typed").decode(), "hello", "hello, too"]
    crossed = json.loads(bob.out[0])
    born = next(row for row in map(json.loads, ann.out) if row["payload"] == "hello")
    assert crossed["from"] == "lobby" and "from" not in born
    assert (crossed["id"], crossed["origin"]) == (born["id"], born["origin"]), "the one name it has everywhere"

    where = json.loads(bridge.notice(r".*has (created|joined) .*")[0])["metrics"]
    status, text = asyncio.run(ask(where, "/metrics", LIMIT))
    assert status == 200
    assert 'whence_bridge_forwarded_total{cluster="lobby"} 1' in text
    assert 'whence_bridge_local_total{cluster="lobby"} 2' in text
    status, text = asyncio.run(ask(where, "/health", LIMIT))
    assert status == 200 and json.loads(text)["ok"], text
    assert bridge.end(signal.SIGINT) == 0
    assert json.loads(bridge.out[-1]) == {"forwarded": {"lobby": 1, "hall": 1}}
    assert ann.end() == 0 and bob.end() == 0, "the tickets were given back: nobody waits for the bridge"


def side(name: str, contact: str) -> tuple[str, ...]:
    return ("--cluster", name, "--contact", contact, "--insecure")


def test_a_circle_ends_with_its_name(start: Callable[..., Command]) -> None:
    first = [start("node", "--cluster", name, "--insecure", "--stay", "--json") for name in ("lobby", "hall")]
    seeds = [json.loads(node.notice(r".*has (created|joined) .*")[0])["address"] for node in first]
    sides = (*side("lobby", seeds[0]), *side("hall", seeds[1]))
    one = start("bridge", *sides, "--probe", 0.2)
    one.notice("is open")
    two = start("bridge", *sides, "--probe", LIMIT)
    assert two.process.wait(LIMIT) == 2
    until(lambda: any("circle: lobby - hall - lobby" in line for line in two.err), f"why: {two.err}")
    assert one.process.poll() is None
    assert one.end(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    "args, why",
    [
        ("", "two clusters or more"),
        ("--cluster a --contact 127.0.0.1:1 --insecure", "two clusters or more"),
        ("--cluster a --contact 127.0.0.1:1 --cluster b", "creates no cluster"),
        ("--cluster a --contact 127.0.0.1:1 --insecure --cluster a --contact 127.0.0.1:1 --insecure", "named once"),
        ("--cluster a --contact 127.0.0.1:1 --cluster b --contact 127.0.0.1:1", "who may take part"),
    ],
)
def test_what_makes_no_sense_is_said_in_one_line(args: str, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bridge", *args.split()]) == 2
    said = capsys.readouterr().err
    assert why in said and len(said.splitlines()) == 1


def test_options_belong_to_the_cluster_named_before(capsys: pytest.CaptureFixture[str]) -> None:
    words = "bridge --cluster a --contact x:1 --contact y:1 --trust h:1 --cluster b --contact z:1 --tls d n"
    args = parser().parse_args([*words.split(), "--tickets", "3"])
    [a], b = args.sides, args
    assert (a.cluster, a.contact, a.tls, a.tickets, a.trust) == ("a", ["x:1", "y:1"], None, None, ["h:1"])
    assert (b.cluster, b.contact, b.tls, b.tickets, b.trust) == ("b", ["z:1"], ["d", "n"], 3, [])
    words = "bridge --cluster a --contact x:1 --insecure --order probabilistic --server s:1 --server t:1 --cluster b"
    args = parser().parse_args([*words.split(), "--contact", "y:1", "--insecure", "--profile", "ccc11"])
    a, b = _options(args.sides[0]), _options(args)
    assert (a["order"], args.sides[0].server, a["settings"]) == ("probabilistic", ["s:1", "t:1"], {})
    assert "order" not in b and b["settings"]["ring"] == "neighbours" and strongest(b) == "reliable"
    with pytest.raises(SystemExit):
        parser().parse_args(["bridge", "--contact", "x:1", "--cluster", "a"])
    assert "--cluster NAME comes before it" in capsys.readouterr().err


async def forge(cluster: str, seed: str) -> None:
    """An event with the heading of a door, and one of our own."""
    async with whence.join(cluster, [seed], insecure=True) as joined, joined.publisher() as publisher:
        await publisher.publish(wrap(FromClient("somebody", 1, False), b"forged"))
        await publisher.publish(b"mine")
