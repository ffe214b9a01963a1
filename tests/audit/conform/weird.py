"""Adapters that are no adapters: `python weird.py MANNER` misbehaves in that manner."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

MANNER = sys.argv[1]
ME = ""

SAYS: dict[str, dict[str, Any]] = {
    "impostor": {"dest": "c1", "src": "n9", "type": "delivered", "id": "1", "value": "x"},
    "stranger": {"dest": "n9", "type": "event"},
    "babbler": {"dest": "c1", "type": "gossip"},
    "nameless": {"dest": "c1", "type": "delivered", "value": "x"},
    "no-events": {"dest": "c1", "type": "installed", "events": {}},
    "unasked": {"dest": "c1", "type": "echo_ok", "in_reply_to": 4711},
}
"""What it sends before it answers `init`."""
CLAIMS: dict[str, object] = {"feature": ["causel"], "no-list": "causal"}
ANSWERS: dict[str, dict[str, Any]] = {
    "refuses": {"type": "error", "code": 10, "text": "read only"},
    "unavailable": {"type": "error", "code": 11, "text": "no quorum"},
    "no-id": {"type": "publish_ok"},
    "keeps": {"type": "publish_ok", "id": 1},
    "slow": {"type": "publish_ok", "id": 1},
}
"""How it answers `publish`."""


def send(dest: str, src: str = "", **body: Any) -> None:
    print(json.dumps({"src": src or ME, "dest": dest, "body": body}), flush=True)


def init(body: dict[str, Any]) -> None:
    global ME
    ME = body["node_id"]
    features = CLAIMS.get(MANNER, ["causal"])
    if MANNER in SAYS:
        send(**SAYS[MANNER])
    if MANNER == "silent":
        return
    if MANNER == "dies":
        print("out of cheese", file=sys.stderr)
        sys.exit(3)
    if MANNER == "chatty":
        print("hello, I am a node")
    if MANNER == "huge":
        print("x" * (2 << 20))
    if MANNER == "unequal" and ME == "n2":
        features = ["causal", "fifo"]
    if MANNER == "installer":
        send("c1", type="delivered", id="1", value="x")
        send("c1", type="installed", events=[])
    if MANNER == "flood":
        while True:
            send("c1", type="delivered", id="1", value="x")
    if MANNER == "wrong-answer":
        send("c1", type="ok", in_reply_to=body["msg_id"])
    if MANNER == "parent":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
        print(child.pid, file=sys.stderr, flush=True)
    if MANNER == "deaf":
        for _ in range(60):  # each comes back to somebody who does not read either
            send("n1" if ME != "n1" else "n2", type="event", text="x" * 900_000)
        time.sleep(600)
    send("c1", type="init_ok", in_reply_to=body["msg_id"], features=features)


def publish(body: dict[str, Any]) -> None:
    if MANNER == "dies-later":
        sys.exit(4)
    if MANNER == "hangs":
        time.sleep(600)
    if MANNER == "slow":
        time.sleep(7)  # longer than the kit waits, but the echo behind it is answered in time
    if MANNER in ANSWERS:
        send("c1", in_reply_to=body["msg_id"], **ANSWERS[MANNER])


for line in sys.stdin:
    body = json.loads(line)["body"]
    if body["type"] == "init":
        init(body)
    elif body["type"] == "publish":
        publish(body)
    elif body["type"] == "echo":
        send("c1", type="echo_ok", in_reply_to=body["msg_id"])
