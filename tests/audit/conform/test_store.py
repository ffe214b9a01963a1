"""Any store can be asked for a history: one that keeps causal consistency, and one that does not."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from whence.audit.conform.store import StoreLoad, record
from whence.audit.history import check
from whence.audit.history.story import story
from whence.cli import main
from whence.errors import AdapterError

NODE = """
import json, sys
SHARED = {shared}
me, nodes, data, asked = "", [], {{}}, {{}}

def send(dest, **body):
    print(json.dumps({{"src": me, "dest": dest, "body": body}}), flush=True)

def run(txn):
    out = []
    for f, k, v in txn:
        if f == "r":
            v = data.get(k)
        else:
            data[k] = v
        out.append([f, k, v])
    return out

for line in sys.stdin:
    message = json.loads(line)
    body, src = message["body"], message["src"]
    if body["type"] == "init":
        me, nodes = body["node_id"], body["node_ids"]
        send(src, type="init_ok", in_reply_to=body["msg_id"])
    elif body["type"] == "txn" and SHARED and me != nodes[0]:
        asked[len(asked)] = (src, body["msg_id"])
        send(nodes[0], type="forward", txn=body["txn"], n=len(asked) - 1)
    elif body["type"] == "txn":
        send(src, type="txn_ok", in_reply_to=body["msg_id"], txn=run(body["txn"]))
        for other in nodes if not SHARED else []:
            for f, k, v in body["txn"]:
                if f == "w" and other != me:
                    send(other, type="copy", k=k, v=v)
    elif body["type"] == "forward":
        send(src, type="done", txn=run(body["txn"]), n=body["n"])
    elif body["type"] == "done":
        client, number = asked[body["n"]]
        send(client, type="txn_ok", in_reply_to=number, txn=body["txn"])
    elif body["type"] == "copy":
        data[body["k"]] = body["v"]
"""


def node(tmp_path: Path, shared: bool) -> list[str]:
    (tmp_path / "node.py").write_text(NODE.format(shared=shared))
    return [sys.executable, str(tmp_path / "node.py")]


def test_a_store_with_one_copy(tmp_path: Path) -> None:
    report = check(asyncio.run(record(node(tmp_path, True), StoreLoad(txns=10, delay_s=0.01, timeout_s=90))))
    assert report.levels == {"RC": True, "RA": True, "TCC": True}
    assert report.transactions == 60


def test_a_store_that_copies_in_any_order(tmp_path: Path) -> None:
    report = check(asyncio.run(record(node(tmp_path, False), StoreLoad(txns=200, keys=3, timeout_s=90))))
    assert not report.levels["TCC"], story(report)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "--store", "rw-register", "--json", "--", *node(tmp_path, True)]) == 0
    assert json.loads(capsys.readouterr().out)["levels"]["TCC"]


def test_a_store_that_dies(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match="ended with exit code 3"):
        asyncio.run(record([sys.executable, "-c", "import sys; sys.exit(3)"], StoreLoad()))
