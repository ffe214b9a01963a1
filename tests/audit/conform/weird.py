"""Adapters that are no adapters: `python weird.py MANNER` misbehaves in that manner."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

MANNER = sys.argv[1]
ME = ""


def send(dest: str, src: str = "", **body: Any) -> None:
    print(json.dumps({"src": src or ME, "dest": dest, "body": body}), flush=True)


def init(body: dict[str, Any]) -> None:
    global ME
    ME = body["node_id"]
    features: object = ["causal"]
    if MANNER == "silent":
        return
    if MANNER == "dies":
        print("out of cheese", file=sys.stderr)
        sys.exit(3)
    if MANNER == "chatty":
        print("hello, I am a node")
    if MANNER == "huge":
        print("x" * (2 << 20))
    if MANNER == "impostor":
        send("c1", src="n9", type="delivered", id="1", value="x")
    if MANNER == "stranger":
        send("n9", type="event")
    if MANNER == "feature":
        features = ["causel"]
    if MANNER == "no-list":
        features = "causal"
    if MANNER == "unequal" and ME == "n2":
        features = ["causal", "fifo"]
    if MANNER == "babbler":
        send("c1", type="gossip")
    if MANNER == "nameless":
        send("c1", type="delivered", value="x")
    if MANNER == "installer":
        send("c1", type="delivered", id="1", value="x")
        send("c1", type="installed", events=[])
    if MANNER == "flood":
        while True:
            send("c1", type="delivered", id="1", value="x")
    if MANNER == "no-events":
        send("c1", type="installed", events={})
    if MANNER == "wrong-answer":
        send("c1", type="ok", in_reply_to=body["msg_id"])
    if MANNER == "unasked":
        send("c1", type="echo_ok", in_reply_to=4711)
    if MANNER == "parent":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
        print(child.pid, file=sys.stderr, flush=True)
    if MANNER == "deaf":
        for _ in range(60):  # each comes back to somebody who does not read either
            send("n1" if ME != "n1" else "n2", type="event", text="x" * 900_000)
        time.sleep(600)
    send("c1", type="init_ok", in_reply_to=body["msg_id"], features=features)


def publish(body: dict[str, Any]) -> None:
    if MANNER == "refuses":
        send("c1", type="error", in_reply_to=body["msg_id"], code=10, text="read only")
    elif MANNER == "unavailable":
        send("c1", type="error", in_reply_to=body["msg_id"], code=11, text="no quorum")
    elif MANNER == "no-id":
        send("c1", type="publish_ok", in_reply_to=body["msg_id"])
    elif MANNER == "dies-later":
        sys.exit(4)
    elif MANNER == "keeps":
        send("c1", type="publish_ok", in_reply_to=body["msg_id"], id=1)
    elif MANNER == "slow":
        time.sleep(7)  # longer than the kit waits, but the echo behind it is answered in time
        send("c1", type="publish_ok", in_reply_to=body["msg_id"], id=1)
    elif MANNER == "hangs":
        time.sleep(600)


for line in sys.stdin:
    body = json.loads(line)["body"]
    if body["type"] == "init":
        init(body)
    elif body["type"] == "publish":
        publish(body)
    elif body["type"] == "echo":
        send("c1", type="echo_ok", in_reply_to=body["msg_id"])
