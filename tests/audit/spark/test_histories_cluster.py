"""One client history spread over a standalone Spark cluster, a worker of which is killed in mid-job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.audit.history import cases
from tests.audit.spark.cluster import WAIT, Cluster
from whence.audit.history import check
from whence.audit.history.levels import TRANSACTIONAL

pytestmark = pytest.mark.long  # one of few rows: test_histories.py


def test_a_worker_is_killed_in_mid_job(tmp_path: Path) -> None:
    rng = Random(50)
    history = cases.generated(rng, 4000, 12, 300, 6, repair=True)
    names = ("session", "txn", "op", "kind", "key", "value")
    made = [dict(zip(names, (s, t, op, k, x, v), strict=True)) for op, (s, t, k, x, v) in enumerate(history.rows())]
    pq.write_table(pa.Table.from_pylist(made), tmp_path / "h.parquet")
    (tmp_path / "cluster").mkdir()
    with ExitStack() as stack:
        cluster = Cluster(tmp_path / "cluster", stack)
        command = [sys.executable, "-m", "whence", "history", str(tmp_path / "h.parquet"), "--json"]
        command += ["--master", cluster.url]
        process = subprocess.Popen(command, env=cluster.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            victim = cluster.first_at_work(process)
            os.killpg(victim.pid, signal.SIGKILL)
            assert process.poll() is None, "the job was over before the worker was killed"
            said, noise = process.communicate(timeout=WAIT)
        finally:
            process.kill()
            process.wait()
        assert cluster.lost_executor(), "the master has not lost a worker"
    assert process.returncode in (0, 1), noise.decode()[-3000:]
    assert json.loads(said)["levels"] == check(history, TRANSACTIONAL).levels
