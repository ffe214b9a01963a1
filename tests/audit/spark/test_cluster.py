"""A real standalone Spark master with two workers on loopback, one of which is killed in mid-job: the same result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import whence
from tests.audit.spark import traces as spark_traces
from tests.audit.spark.cluster import WAIT, Cluster
from tests.data import needs_java
from whence.cli import main

pytestmark = pytest.mark.long

KEYS = {
    "verdicts": ("run", "cluster", "member", "lseq"),
    "violations": ("run", "cluster", "rule", "member", "lseq", "event", "detail"),
    "members": ("run", "cluster", "member"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    needs_java()
    with ExitStack() as stack:
        yield Cluster(tmp_path_factory.mktemp("cluster"), stack)


def judged(out: Path, table: str) -> pa.Table:
    """A table with its rows in an order of their own."""
    found = pq.read_table(out / table)
    return found.sort_by([(name, "ascending") for name in KEYS[table]])


TIMES = ("seconds", "result_seconds", "total_seconds", "deliveries_per_s")
"""Figures that tell of the machine."""

SIM = """
runner = "sim"
seeds = 2
[settings]
scenario = "demo"
duration = "2s"
settle = "2s"
[grid]
network.loss = [0.0, 0.1]
"""
SCALE = """
runner = "scale"
seeds = 2
[settings]
processes = 30
entries = 10
deliveries = 20000
[grid]
keys = [2, 3]
"""


@pytest.mark.parametrize("grid", [SIM, SCALE], ids=["sim", "scale"])
def test_a_sweep(cluster: Cluster, spark: SparkSession, tmp_path: Path, grid: str) -> None:
    """Points run on the workers, with our package shipped to them, and give what they give here. Here first: what numba
    has compiled is shipped, too, so that executors compile nothing."""
    (tmp_path / "grid.toml").write_text(grid)
    assert main(["sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "embedded"), "--json"]) == 0
    command = [sys.executable, "-m", "whence", "sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "out")]
    command += ["--master", cluster.url, "--memory", "1g", "--json"]
    done = subprocess.run(command, env=cluster.env, capture_output=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert json.loads(done.stdout)["points"] == 4
    found, here = (
        sorted(
            ({k: v for k, v in row.items() if k not in TIMES} for row in pq.read_table(place).to_pylist()),
            key=lambda row: (str(row["setting"]), str(row["seed"])),
        )
        for place in (tmp_path / "out" / "results", tmp_path / "embedded" / "results")
    )
    assert found == here and len(found) == 4 and all(row["error"] is None for row in found)
    ours = {path.name for path in Path(whence.__file__).parent.rglob("*.nbc")}
    theirs = {path.name for path in cluster.place.rglob("whence-package/**/*.nbc")}
    if ours:  # else numba keeps it elsewhere, or not at all
        assert theirs <= ours


@pytest.mark.skipif(find_spec("grpc") is None, reason="Spark Connect needs the packages of whence[connect]")
def test_spark_connect(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    """An audit by way of a server that knows nothing of us: our package is sent to it."""
    made, _ = spark_traces.make(10_000, runs=2, origins=5, members=40, wrongs=4)
    spark_traces.write(made, tmp_path / "trace")
    env = {**cluster.env, "SPARK_REMOTE": cluster.connect()}
    command = [sys.executable, "-m", "whence", "audit", str(tmp_path / "trace"), "--out", str(tmp_path / "out")]
    done = subprocess.run([*command, "--json"], env=env, capture_output=True, timeout=WAIT)
    assert done.returncode == 1, done.stderr.decode()[-3000:]
    assert main(["audit", str(tmp_path / "trace"), "--out", str(tmp_path / "embedded"), "--json"]) == 1
    for table in KEYS:
        assert judged(tmp_path / "out", table).equals(judged(tmp_path / "embedded", table)), table


OWN = """
import json, sys
from pyspark.sql import SparkSession
from whence.audit import audit
builder = SparkSession.builder
spark = builder.remote(sys.argv[1]) if sys.argv[1].startswith("sc://") else builder.master(sys.argv[1])
spark = spark.config("spark.sql.shuffle.partitions", "4").getOrCreate()
if sys.argv[1].startswith("sc://"):
    from whence.audit import ship
    ship(spark)
rows = spark.read.parquet(sys.argv[2])
counts = []
for giant in (None, 2000):
    with audit(rows, giant=giant) as found:
        wrong = [[row.run, row.rule, row.member, row.lseq] for row in found.violations.collect()]
        counts.append([found.verdicts.count(), found.members.count(), sorted(wrong, key=str)])
print(json.dumps(counts))
"""


@pytest.mark.parametrize("where", ["local-cluster[2,1,1024]", "connect"])
def test_a_session_of_ones_own(cluster: Cluster, spark: SparkSession, tmp_path: Path, where: str) -> None:
    """`audit(df)` on executors that are processes of their own, and by way of Spark Connect; runs whole and spread."""
    if where == "connect" and find_spec("grpc") is None:
        pytest.skip("Spark Connect needs the packages of whence[connect]")
    made, _ = spark_traces.make(10_000, runs=3, origins=5, members=40, wrongs=4)
    spark_traces.write(made, tmp_path / "trace")
    master = cluster.connect() if where == "connect" else where
    command = [sys.executable, "-c", OWN, master, str(tmp_path / "trace")]
    env = {**cluster.env, "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, timeout=WAIT)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    whole, parts = json.loads(done.stdout.splitlines()[-1])
    here = ["audit", str(tmp_path / "trace"), "--out", str(tmp_path / "embedded"), "--verdicts", "all", "--json"]
    assert main(here) == 1
    told = pq.read_table(tmp_path / "embedded" / "violations").to_pylist()
    wrong = sorted([[row["run"], row["rule"], row["member"], row["lseq"]] for row in told], key=str)
    assert (
        whole == parts == [*(pq.read_table(tmp_path / "embedded" / t).num_rows for t in ("verdicts", "members")), wrong]
    )


def test_a_worker_is_killed_in_mid_job(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    made, injected = spark_traces.make(1_100_000, runs=10, origins=20, members=100, wrongs=20)
    spark_traces.write(made, tmp_path / "trace", layout="mixed", files=12)
    command = [sys.executable, "-m", "whence", "audit", str(tmp_path / "trace")]
    command += ["--out", str(tmp_path / "out"), "--master", cluster.url, "--memory", "1g", "--json"]
    process = subprocess.Popen(command, env=cluster.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        victim = cluster.first_at_work(process)
        os.killpg(victim.pid, signal.SIGKILL)
        assert process.poll() is None, "the job was over before the worker was killed"
        said, noise = process.communicate(timeout=WAIT)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1, noise.decode()[-3000:]  # violations were found
    found = json.loads(said)
    assert found["design"] == "shuffle" and found["violations"]["causal"] == len(injected.inverted) == 20
    assert cluster.lost_executor(), "the master has not lost a worker"
    assert main(["audit", str(tmp_path / "trace"), "--out", str(tmp_path / "embedded"), "--json"]) == 1
    for table in KEYS:
        assert judged(tmp_path / "out", table).equals(judged(tmp_path / "embedded", table)), table
    assert found["deliveries"] > 1_000_000
