"""A standalone Spark master with two workers on loopback, for tests."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pyspark

from tests.ports import free_ports

HOME = Path(pyspark.__file__).parent
WAIT = 850.0
"""Seconds after which something is taken as broken. Nothing is measured by it."""


class Cluster:
    """A master and its workers, each in a session of its own, by which its executors are known."""

    def __init__(self, place: Path, stack: ExitStack) -> None:
        self.place = place
        self.stack = stack
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SPARK", "PYSPARK"))},
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(place / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
        (port,) = free_ports(1)
        self.url = f"spark://127.0.0.1:{port}"
        self.master = self._start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port))
        self._until("Starting Spark master", "master")
        self.workers = [
            self._start(name, "worker.Worker", "--host", "127.0.0.1", *self._limits(name), self.url)
            for name in ("worker-1", "worker-2")
        ]
        for name in ("worker-1", "worker-2"):
            self._until("Successfully registered", name)

    def connect(self) -> str:
        """A Spark Connect server (with a Spark of its own); its address."""
        (port,) = free_ports(1)
        bound = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": port}
        settings = [word for name, value in bound.items() for word in ("--conf", f"{name}={value}")]
        server = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[1]"]
        self._run("connect", "org.apache.spark.deploy.SparkSubmit", *server, *settings, "spark-internal")
        self._until("Spark Connect server started", "connect")
        return f"sc://127.0.0.1:{port}"

    def _limits(self, name: str) -> list[str]:
        return ["--cores", "1", "--memory", "1g", "--work-dir", str(self.place / name)]

    def _start(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        return self._run(name, f"org.apache.spark.deploy.{what}", "--webui-port", "0", *arguments)

    def _run(self, name: str, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), what, *arguments]
        with (self.place / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.env, stdout=log, stderr=log, start_new_session=True, preexec_fn=_with_parent
            )
        self.stack.callback(_end, process)
        return process

    def _until(self, said: str, name: str) -> None:
        end = time.monotonic() + WAIT
        log = self.place / f"{name}.log"
        while said not in log.read_text(errors="replace"):
            assert time.monotonic() < end, f"{name} does not come up: {log.read_text(errors='replace')[-2000:]}"
            time.sleep(0.05)

    def first_at_work(self, job: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        """The first worker whose executor has a Python worker: that has a task of ours."""
        end = time.monotonic() + WAIT
        while job.poll() is None:
            assert time.monotonic() < end, "no executor has got a task"
            sessions = _sessions_of("pyspark.daemon")
            for worker in self.workers:
                if worker.pid in sessions:
                    return worker
            time.sleep(0.02)
        raise AssertionError(f"the job is over: {job.communicate()[1].decode()[-3000:]}")

    def lost_executor(self) -> bool:
        return "Removing worker" in (self.place / "master.log").read_text(errors="replace")


def _sessions_of(command: str) -> set[int]:
    """The sessions in which such a command runs (Python workers make process groups of their own)."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):
            if command.encode() in (process / "cmdline").read_bytes():
                found.add(int((process / "stat").read_text().rpartition(")")[2].split()[3]))
    return found


def _with_parent() -> None:
    """In the child: it dies when this test process does, however that ends. (prctl, PR_SET_PDEATHSIG)"""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
