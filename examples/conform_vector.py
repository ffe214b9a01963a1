"""Causal broadcast with vector clocks in one file, without whence: the example adapter of the conformance kit.

    whence conform -- python examples/conform_vector.py

A node keeps a log of all delivered events. It sends each event to everybody at once, and every 0.1 s sends how many
events of each node it has; a node with more sends the missing ones. This covers losses, partitions, late joiners and
restarts. The log is also on disk, so that a number is never reused.
"""

import json
import os
import select
import sys
import time
from pathlib import Path

EVERY_S = 0.1


class Node:
    features = ("fifo", "causal", "reliable", "datagrams", "loss", "late-join", "restart")

    def __init__(self):
        self.me, self.peers, self.disk = "", {}, None
        self.clock = {}  # node -> how many of its events are delivered here
        self.log = {}  # node -> its events, in order
        self.held = {}  # (node, number) -> event that waits for others

    def send(self, dest, **body):
        print(json.dumps({"src": self.me, "dest": dest, "body": body}), flush=True)

    # Requests of the kit

    def init(self, body):
        self.me = body["node_id"]
        self.peers = {n: None for n in body["node_ids"] if n != self.me}
        log = Path(body["dir"]) / "log"
        if log.exists():  # from before a restart
            for line in log.read_text().splitlines():
                self.remember(json.loads(line))
        self.disk = log.open("a")
        return {"type": "init_ok", "features": list(self.features)}

    def publish(self, body):
        event = {
            "node": self.me,
            "n": self.clock.get(self.me, 0) + 1,
            "needs": dict(self.clock),
            "value": body["value"],
        }
        self.deliver(event)
        for peer in self.peers:
            self.send(peer, type="event", event=event)
        return {"type": "publish_ok", "id": f"{self.me}-{event['n']}"}

    def echo(self, body):
        return {"type": "echo_ok", "echo": body["echo"]}

    # Messages between nodes

    def event(self, event):
        if event["n"] > self.clock.get(event["node"], 0):
            self.held[event["node"], event["n"]] = event
            self.drain()

    def have(self, peer, clock):
        for node, events in self.log.items():
            for event in events[clock.get(node, 0) :]:
                self.send(peer, type="event", event=event)

    # Local actions

    def ready(self, event):
        needs = {**event["needs"], event["node"]: event["n"] - 1}
        return all(self.clock.get(node, 0) >= n for node, n in needs.items())

    def drain(self):
        while ready := [event for event in self.held.values() if self.ready(event)]:
            for event in ready:
                del self.held[event["node"], event["n"]]
                if event["n"] > self.clock.get(event["node"], 0):
                    self.deliver(event)

    def deliver(self, event):
        self.disk.write(json.dumps(event) + "\n")  # on disk before it is sent
        self.disk.flush()
        self.remember(event)
        self.send("c1", type="delivered", id=f"{event['node']}-{event['n']}", value=event["value"])

    def remember(self, event):
        self.clock[event["node"]] = event["n"]
        self.log.setdefault(event["node"], []).append(event)

    def tick(self):
        for peer in self.peers:
            self.send(peer, type="have", clock=self.clock)

    def handle(self, message):
        src, body = message["src"], message["body"]
        if body["type"] == "event":
            self.event(body["event"])
        elif body["type"] == "have":
            self.peers[src] = None  # a joiner is known by its messages
            self.have(src, body["clock"])
        else:
            reply = getattr(self, body["type"])(body)
            self.send(src, in_reply_to=body["msg_id"], **reply)

    def run(self):
        buffer, next_tick = b"", time.monotonic() + EVERY_S
        while True:
            if select.select([0], [], [], max(0, next_tick - time.monotonic()))[0]:
                data = os.read(0, 65536)
                if not data:
                    return  # the kit is gone
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    self.handle(json.loads(line))
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + EVERY_S
                self.tick()


if __name__ == "__main__":
    sys.exit(Node().run())
