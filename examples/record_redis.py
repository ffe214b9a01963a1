"""Records what clients of Redis see, as `whence history` reads it: a JSON object for each operation.

    redis-server --port 6379
    python examples/record_redis.py 127.0.0.1:6379 > one.jsonl
    whence history one.jsonl

With a second address, of a replica, clients read there: does a client see its own writes, and what they depend on?
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading

SESSIONS, OPERATIONS = 6, 100
KEYS = ("apples", "pears", "plums")


class Client:
    """A connection, and the simplest form of the protocol."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.file = socket.create_connection((host, int(port)), 60).makefile("rwb")

    def ask(self, command: str) -> str | None:
        self.file.write(command.encode() + b"\r\n")
        self.file.flush()
        answer = self.file.readline()
        if answer[:1] not in (b"+", b"$"):
            raise RuntimeError(f"{command}: {answer.decode() or 'the connection is closed'}")
        size = int(answer[1:]) if answer[:1] == b"$" else -1
        return None if size < 0 else self.file.read(size + 2)[:-2].decode()


def session(number: int, addresses: list[str]) -> None:
    rng, primary, near = random.Random(number), Client(addresses[0]), Client(addresses[-1])
    for txn in range(OPERATIONS):
        kind, key, value = rng.choice("rw"), rng.choice(KEYS), f"{number}.{txn}"  # each value is written once
        seen = primary.ask(f"SET {key} {value}") if kind == "w" else near.ask(f"GET {key}")
        row = {"session": number, "txn": txn, "kind": kind, "key": key, "value": value if kind == "w" else seen}
        sys.stdout.write(json.dumps(row) + "\n")


def main() -> None:
    if not sys.argv[1:]:
        sys.exit("usage: record_redis.py HOST:PORT [HOST:PORT of a replica]")
    try:
        for key in KEYS:  # values of an earlier recording would be read, and nobody here wrote them
            Client(sys.argv[1]).ask(f"GETDEL {key}")
    except (OSError, ValueError) as error:
        sys.exit(f"{sys.argv[1]}: {error}")
    threads = [threading.Thread(target=session, args=(number, sys.argv[1:])) for number in range(SESSIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


main()
