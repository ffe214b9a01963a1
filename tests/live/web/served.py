"""Three `whence serve` as processes, traced."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.commands import LIMIT, Command, until
from tests.ports import free_ports
from whence.audit.judge import judge
from whence.audit.trace import Row, read


class Served:
    """Three workers, traced."""

    def __init__(self, start: Callable[..., Command], home: Path, *options: object) -> None:
        self.traces = home / "traces"
        self.started: list[Command] = []
        self.urls: list[str] = []
        self.members: list[str] = []
        contact = f"127.0.0.1:{free_ports(1)[0]}"
        for n in range(3):
            where = ["--contact", contact] if n else ["--listen", contact]
            more = ["--insecure", "--http", "127.0.0.1:0", "--trace", self.traces / str(n), "--json"]
            self.started.append(start("serve", *options, "--cluster", "chat", *where, *more))
            said = self.notice(n, "rooms")
            self.urls.append(said["rooms"].replace("http", "ws") + "/lobby")
            self.members.append(said["me"])
        until(lambda: any('"may_lose": 1' in line for line in list(self.started[0].err)), "one may be lost")

    def notice(self, n: int, key: str) -> dict[str, Any]:
        def find() -> Any:
            lines = [json.loads(line) for line in list(self.started[n].err) if line.startswith("{")]
            return next((line for line in lines if key in line), None)

        return until(find, f"worker {n} says {key}")

    def kill(self, n: int) -> None:
        """kill -9."""
        self.started[n].process.kill()
        self.started[n].process.wait(LIMIT)

    def rows(self) -> list[Row]:
        """The steps in the room; a killed process may leave half a line."""
        return [row for row in read(self.traces, on_bad="collect") if row.cluster == "chat/lobby"]

    def judged(self, clients: int) -> Counter[str]:
        """The judge on the steps of the clients: `reliable`, from their first to their last. How many events each was
        given."""
        until(lambda: sum(row.kind == "leave" for row in self.rows()) >= clients, "clients say that they leave")
        rows = list({(row.member, row.lseq): row for row in self.rows()}.values())  # some are sent to two workers
        assert {row.order for row in rows if row.kind == "join"} == {"reliable"}
        report = judge(rows)
        assert report.ok and not report.doubts, report
        return Counter(row.member for row in rows if row.kind == "deliver")
