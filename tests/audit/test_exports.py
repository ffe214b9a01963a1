"""What `whence.audit` exports is there, and costs nothing before it is used."""

from __future__ import annotations

import subprocess
import sys

import whence.audit


def test_every_name_is_there() -> None:
    assert all(callable(getattr(whence.audit, name)) for name in whence.audit.__all__)
    assert dir(whence.audit) == whence.audit.__all__


def test_nothing_is_loaded_before_it_is_used() -> None:
    code = "import sys, whence.audit; assert not {'pyspark', 'pyarrow', 'numpy'} & set(sys.modules), 'loaded'"
    subprocess.run([sys.executable, "-c", code], check=True)
