"""A voter's memory as a row elsewhere: in etcd, in a database, in a Kubernetes Lease.

A row is read, and set if nobody has set it since (`Row`). It says who holds it; the memory is beside that. Rules of
this file:

1. A holder sets the row every third of `HOLD`, and tries again while the row cannot be reached. Nothing of a voter
   leaves it later than two thirds of `HOLD` after it last *began* to set the row with success (`check`).
2. Another process takes the row over when it has seen it unchanged for longer than `HOLD` on every clock. Then it is
   the voter, and says nothing for one lease (docs/ring.md, rule C9).
3. A holder that finds the row changed is a holder no more, and stops. After a call without an answer it reads the row
   first: the change may be its own.

So no two processes vote as one. Calls block: they are short, and a voter that cannot reach its row may say nothing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import ssl
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from whence.core.ring.interface import Memory
from whence.errors import DiskError, JournalInUse, UsageError
from whence.live.net.votes import pack, unpack

HOLD: Final = 6_000_000_000
"""Nanoseconds for which a row belongs to whoever has set it. Longer: a dead holder's row comes back later."""
DRIFT: Final = 1.05
"""More than two clocks run apart in `HOLD`."""
TIMEOUT: Final = 1.5
"""Seconds for one call."""
RETRY: Final = 250_000_000
"""Nanoseconds until a row that could not be reached is tried again."""


class RowUnreachable(DiskError):
    """The database does not answer: it may have taken the last change or not."""


class Row(Protocol):
    """What a voter needs of a database."""

    where: str

    def read(self) -> tuple[bytes, object]:
        """The value, empty if there is none, and its version. Raises OSError."""

    def compare_and_set(self, version: object, value: bytes) -> object | None:
        """Set it if it still has this version; returns the new version, None: somebody else has set it. Raises OSError,
        and then it may have been set or not."""


class RowVotes:
    """A voter's memory in a row."""

    def __init__(
        self, row: Row, clock: Callable[[], int], sleep: Callable[[float], None] = time.sleep, patience: float = 30.0
    ) -> None:
        self._row, self._clock, self._sleep = row, clock, sleep
        self._holder = uuid.uuid4().bytes
        self._count = 0
        self._value = b""
        self._version: object = None
        self._held_at = self._tried_at = 0
        self._unsure = False
        self._take(patience)

    def _take(self, patience: float) -> None:
        """Rule 2."""
        began = since = self._clock()
        value, self._version = self._call(self._row.read)
        while value and value[16:24] != bytes(8) and self._clock() - since <= HOLD * DRIFT:
            self._sleep(HOLD / 2e10)
            again, version = self._call(self._row.read)
            if version != self._version:
                since = self._clock()
            value, self._version = again, version
            if self._clock() - began > patience * 1e9:
                raise JournalInUse(f"{self._row.where} is in use by another process: each voter needs a row of its own")
        self._value = value[24:]
        self._set()

    def load(self) -> Memory | None:
        return unpack(self._value, self._row.where) if self._value else None

    def save(self, memory: Memory) -> None:
        self._value = pack(memory)
        while not self._renewed():
            self._sleep(RETRY / 1e9)

    def check(self, now: int) -> None:
        now = self._clock()
        if now - self._held_at >= HOLD // 3 and (now - self._tried_at >= RETRY or self._late()):
            self._renewed()

    def _late(self) -> bool:
        return self._clock() - self._held_at >= HOLD * 2 // 3

    def _renewed(self) -> bool:
        """The row is set; False: it can be tried again. Raises DiskError when it cannot (rules 1 and 3)."""
        try:
            self._set()
        except RowUnreachable:
            if self._late():
                raise
            return False
        return True

    def close(self) -> None:
        """Let it go: the next holder need not wait."""
        self._count = -1
        with contextlib.suppress(DiskError):
            self._set()

    def _set(self) -> None:
        """Rules 1 and 3."""
        self._tried_at = began = self._clock()
        if self._unsure:
            found, version = self._call(self._row.read)
            if found[:16] == self._holder:
                self._version = version
        self._count += 1
        value = self._holder + self._count.to_bytes(8, "big") + self._value
        self._unsure = True
        version = self._call(lambda: self._row.compare_and_set(self._version, value))
        self._unsure = False
        if version is None:
            raise DiskError(f"{self._row.where} was taken by another process: this one is no voter any more")
        self._version, self._held_at = version, began

    def _call(self, what: Callable[[], Any]) -> Any:
        try:
            return what()
        except (OSError, ValueError, KeyError) as error:
            raise RowUnreachable(f"cannot use {self._row.where}: {type(error).__name__}: {error}") from error


# -- where rows are ------------------------------------------------------------------------------------------------


class SqlRow:
    """A row of a table `whence_votes (name, version, value)`, by any DB-API connection; it is made if it is missing."""

    def __init__(self, connection: Any, name: str, mark: str = "?", where: str = "") -> None:
        self.where = where or f"the row {name!r} of whence_votes"
        self._connection, self._name, self._mark = connection, name, mark
        self._run("CREATE TABLE IF NOT EXISTS whence_votes (name VARCHAR(255) PRIMARY KEY, version BIGINT, value TEXT)")

    def read(self) -> tuple[bytes, object]:
        cursor = self._run("SELECT value, version FROM whence_votes WHERE name = ?", self._name)
        found = cursor.fetchone()
        self._connection.commit()
        return (b"", 0) if found is None else (base64.b64decode(found[0]), found[1])

    def compare_and_set(self, version: object, value: bytes) -> object | None:
        text, old = base64.b64encode(value).decode(), int(str(version))
        if old == 0:
            try:
                self._run("INSERT INTO whence_votes (name, version, value) VALUES (?, 1, ?)", self._name, text)
            except Exception:  # DB-API: each driver has an IntegrityError of its own
                self._connection.rollback()
                if self.read()[0]:
                    return None
                raise OSError(f"{self.where} can neither be made nor read") from None
            return 1
        change = "UPDATE whence_votes SET value = ?, version = version + 1 WHERE name = ? AND version = ?"
        cursor = self._run(change, text, self._name, old)
        return old + 1 if cursor.rowcount == 1 else None

    def _run(self, statement: str, *values: object) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self._mark), values)
        if not statement.startswith("SELECT"):
            self._connection.commit()
        return cursor


class HttpRow:
    """What etcd and Kubernetes have in common."""

    def __init__(self, base: str, where: str, headers: dict[str, str], context: ssl.SSLContext | None = None) -> None:
        self.where = where
        self._base, self._headers, self._context = base, headers, context

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and JSON body. Raises OSError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self._headers}
        import urllib.error  # 2 MB that no other member needs
        import urllib.request

        request = urllib.request.Request(self._base + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT, context=self._context) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code in (404, 409):
                return error.code, None
            raise


class EtcdRow(HttpRow):
    """A key of etcd, by its JSON gateway (v3)."""

    def __init__(self, endpoint: str, key: str) -> None:
        super().__init__(endpoint, f"etcd's key {key!r}", {})
        self._key = base64.b64encode(key.encode()).decode()

    def read(self) -> tuple[bytes, object]:
        _, got = self.ask("POST", "/v3/kv/range", {"key": self._key})
        found = got.get("kvs") or []
        return (base64.b64decode(found[0].get("value", "")), found[0]["mod_revision"]) if found else (b"", "0")

    def compare_and_set(self, version: object, value: bytes) -> object | None:
        same = {"key": self._key, "target": "MOD", "result": "EQUAL", "mod_revision": version}
        put = {"requestPut": {"key": self._key, "value": base64.b64encode(value).decode()}}
        _, got = self.ask("POST", "/v3/kv/txn", {"compare": [same], "success": [put]})
        return got["header"]["revision"] if got.get("succeeded") else None


class LeaseRow(HttpRow):
    """A Kubernetes Lease (coordination.k8s.io/v1): the memory is an annotation of it, `resourceVersion` its version."""

    ANNOTATION = "whence/vote"

    def __init__(
        self, base: str, namespace: str, name: str, token: str = "", context: ssl.SSLContext | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        super().__init__(base, f"the Lease {namespace}/{name}", headers, context)
        self._all = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name

    def read(self) -> tuple[bytes, object]:
        status, got = self.ask("GET", f"{self._all}/{self._name}")
        if status == 404:
            return b"", ""
        meta = got["metadata"]
        text = (meta.get("annotations") or {}).get(self.ANNOTATION, "")
        return base64.b64decode(text), meta["resourceVersion"]

    def compare_and_set(self, version: object, value: bytes) -> object | None:
        meta: dict[str, Any] = {"name": self._name, "annotations": {self.ANNOTATION: base64.b64encode(value).decode()}}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        if version:
            meta["resourceVersion"] = version
            status, got = self.ask("PUT", f"{self._all}/{self._name}", lease)
        else:
            status, got = self.ask("POST", self._all, lease)
        return got["metadata"]["resourceVersion"] if status < 300 else None


SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def row_at(url: str) -> Row:
    """`etcd://HOST:PORT/KEY`, `sqlite:///FILE?name=ROW`, or inside a pod `k8s://NAMESPACE/NAME`."""
    parts = urlsplit(url)
    path = parts.path.lstrip("/")
    match parts.scheme:
        case "etcd" if parts.netloc and path:
            return EtcdRow(f"http://{parts.netloc}", path)
        case "sqlite" if path:
            import sqlite3  # not in every process

            name = parse_qs(parts.query).get("name", ["voter"])[0]
            connection = sqlite3.connect("/" + path, timeout=TIMEOUT)
            return SqlRow(connection, name, where=f"the row {name!r} of /{path}")
        case "k8s" if parts.netloc and re.fullmatch(r"[a-z0-9.-]+", path):
            host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
            if not host or not (SERVICE_ACCOUNT / "token").is_file():
                raise UsageError(f"{url}: there is no service account here; a Lease can be used inside a pod")
            context = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
            token = (SERVICE_ACCOUNT / "token").read_text().strip()
            return LeaseRow(f"https://{host}:{port}", parts.netloc, path, token, context)
    raise UsageError(
        f"a voter's memory is a directory, etcd://HOST:PORT/KEY, sqlite:///FILE?name=ROW or k8s://NAMESPACE/NAME, "
        f"not {url!r}"
    )
