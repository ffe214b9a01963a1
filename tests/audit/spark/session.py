"""The one Spark session of a test process. Import `spark` into the test module that needs it."""

from __future__ import annotations

import os
from collections.abc import Iterator

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
