"""`whence status` of three processes, before and after two are killed."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.cli.commands import Command, until, whence


def test_status_of_three_processes(start: Callable[..., Command]) -> None:
    a = start("node", "--cluster", "lobby", "--insecure", "--publish", "--stay", "--metrics", "127.0.0.1:0")
    join = ("node", "--cluster", "lobby", "--contact", a.address, "--insecure", "--stay")
    b = start(*join, "--order", "reliable", "--metrics", "127.0.0.1:0")
    c = start(*join)
    b.notice(r"council of 3 \(")
    code, out, err = whence("status", b.metrics, "--json")
    [cluster] = json.loads(out)["clusters"]
    members = {one["member"].partition("#")[0]: one for one in cluster["members"]}
    assert code == 0 and not err and set(members) == {a.address, b.address, c.address}
    assert all(one["answers"] for one in members.values()) and cluster["may_lose"] == 1
    assert [members[x.address]["order"] for x in (a, b, c)] == ["causal", "reliable", "causal"]
    assert members[a.address]["ticket"] is not None and members[b.address]["ticket"] is None
    for gone in (a, c):
        gone.process.kill()
    for gone in (a, c):
        b.notice(f"{gone.address} is gone: it did not leave")
    code, out, _ = until(lambda: (said := whence("status", b.metrics))[0] == 1 and said, "b is alone")
    assert "1 members" in out and out.count("did not leave") == 2 and "nobody can get a ticket" in out
    assert "not well: lobby: knows no other member" in out


def test_status_says_where_to_ask(start: Callable[..., Command]) -> None:
    a = start("node", "--cluster", "lobby", "--insecure", "--stay")
    code, out, err = whence("status", a.address)
    assert code == 2 and not out and "does not answer in HTTP. Give the port where a member serves /status" in err
    a.process.kill()
    a.process.wait()
    code, _, err = whence("status", a.address)
    assert code == 2 and "refused" in err.lower() and "--metrics" in err
