"""What several tests of the pipeline need: the one Spark session, and a disk that is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.data import needs_java
from whence.audit.judge.batch.audited import warm
from whence.audit.spark.session import session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Embedded, two cores, little memory, for small inputs. Shared by all tests of the process: never stop it, never
    change its settings for good. The kernels are compiled here first, and once: each Python worker of Spark would
    compile them for itself, and they do not wait for each other. Workers may talk to a store that takes any key."""
    needs_java()
    os.environ.setdefault("AWS_ACCESS_KEY_ID", "testing")
    os.environ.setdefault("AWS_SECRET_ACCESS_KEY", "testing")
    warm()
    yield session(master="local[2]", memory="2g")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=400", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be mounted here (that takes root)")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
