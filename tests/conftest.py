"""What tests of several rooms need."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.cli.commands import LIMIT, Command

# The same examples each time, so that whoever runs the tests sees what we saw; new ones by `make explore`. How long an
# example takes is no matter of a test: a machine may be busy.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("same"), derandomize=False)
settings.load_profile("explore" if os.environ.get("WHENCE_EXPLORE") else "same")


# A shell lets what it starts in the background ignore Ctrl-C, and so would every process of a test that interrupts one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


FIRST = ("spark", "history", "scale")
"""Groups of tests in the order in which workers take them. Spark's takes longest. The kernels that tests of histories
compile are there, on disk, when Spark's workers need them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups stay on one worker, and come first: begun last, the longest would run alone."""

    def place(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        if group is None:
            return len(FIRST) + 1
        return FIRST.index(group.args[0]) if group.args[0] in FIRST else len(FIRST)

    items.sort(key=place)


_CLOCKS = {name: getattr(time, name) for name in ("monotonic", "monotonic_ns", "clock_gettime_ns", "time", "time_ns")}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """A test that leaves a patched clock behind stops the time of all later ones: it fails itself."""
    yield
    left = [name for name, clock in _CLOCKS.items() if getattr(time, name) is not clock]
    for name in left:
        setattr(time, name, _CLOCKS[name])
    assert not left, f"the test left its own time.{', time.'.join(left)} behind"


@pytest.fixture
def start() -> Iterator[Callable[..., Command]]:
    """Starts `whence` commands; whatever a failing test leaves behind is killed."""
    started: list[Command] = []

    def begin(*args: object) -> Command:
        started.append(Command(*args))
        return started[-1]

    yield begin
    for command in started:
        command.process.kill()
        command.process.wait(LIMIT)
