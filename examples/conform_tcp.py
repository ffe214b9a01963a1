"""Vector clocks over TCP, without whence: a system with a network of its own, for the conformance kit.

    whence conform --own-network -- python examples/conform_tcp.py

`init` says by which addresses the other nodes are reached (`peers`), `init_ok` where this one listens (`address`).
"""

import asyncio
import json
import sys


class Node:
    def __init__(self):
        self.me, self.clock, self.held, self.links = "", {}, [], []

    def say(self, **body):
        print(json.dumps({"src": self.me, "dest": "c1", "body": body}), flush=True)

    def deliver(self, event):
        self.clock[event["node"]] = event["n"]
        self.say(type="delivered", id=f"{event['node']}-{event['n']}", value=event["value"])

    def ready(self, event):
        needs = {**event["needs"], event["node"]: event["n"] - 1}
        return all(self.clock.get(node, 0) >= n for node, n in needs.items())

    async def accept(self, reader, writer):
        while line := await reader.readline():
            self.held.append(json.loads(line))
            while event := next(filter(self.ready, self.held), None):
                self.held.remove(event)
                self.deliver(event)

    async def dial(self, address, events):
        event = None
        while True:
            try:
                _, writer = await asyncio.open_connection(*address.split(":"))
                while True:
                    event = event or await events.get()
                    writer.write(json.dumps(event).encode() + b"\n")
                    await writer.drain()
                    event = None
            except OSError:
                await asyncio.sleep(0.1)

    async def main(self):
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            asked = json.loads(line)["body"]
            answer = {"type": f"{asked['type']}_ok", "in_reply_to": asked["msg_id"]}
            if asked["type"] == "init":
                self.me = asked["node_id"]
                answer["address"] = "{}:{}".format(*server.sockets[0].getsockname())
                events = {peer: asyncio.Queue() for peer in asked["peers"]}
                self.links = [events, *(asyncio.create_task(self.dial(asked["peers"][p], events[p])) for p in events)]
            elif asked["type"] == "publish":
                n = self.clock.get(self.me, 0) + 1
                event = {"node": self.me, "n": n, "needs": dict(self.clock), "value": asked["value"]}
                self.deliver(event)
                for queue in self.links[0].values():
                    queue.put_nowait(event)
                answer["id"] = f"{self.me}-{n}"
            self.say(**answer)


if __name__ == "__main__":
    asyncio.run(Node().main())
