"""What tests of several rooms need."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.cli.commands import LIMIT, Command

# The same examples each time, so that whoever runs the tests sees what we saw; new ones by `make explore`. No example
# has a time limit: a machine may be busy.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", settings.get_profile("same"), derandomize=False)
settings.load_profile("explore" if os.environ.get("WHENCE_EXPLORE") else "same")


# A shell lets what it starts in the background ignore Ctrl-C, and so would every process of a test that interrupts one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


STUCK_S = 1200
"""No test takes so long, however busy the machine is: one that does fails, and the others are run."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    def stuck(*_: object) -> None:
        raise TimeoutError(f"the test is not over after {STUCK_S} s")

    if item.get_closest_marker("long") is not None:
        return (yield)
    former = signal.signal(signal.SIGALRM, stuck)
    signal.alarm(STUCK_S)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)


@pytest.fixture(autouse=True)
def no_voter_remembers(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Voters of tests keep their memory apart from the user's, and from that of other tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / f"state-{uuid.uuid4().hex}"))


TOGETHER = {
    "tests/audit/spark/": "Spark: one session",
    "tests/audit/history/": "kernels of histories: compiled once",
    "tests/cli/test_history.py": "kernels of histories: compiled once",
    "tests/audit/judge/batch/": "kernels of the judge: compiled once",
    "tests/lab/scale/": "kernels of the array engine: compiled once",
    "tests/lab/paper/test_pco17.py": "kernels of the array engine: compiled once",
    "tests/audit/conform/test_cli.py": "one run of all bad adapters",
    "tests/audit/conform/test_suite.py": "one run of all mistakes",
    "tests/audit/report/test_browser.py": "one browser",
    "tests/live/web/test_browser.py": "one browser",
}
"""Tests that run on one worker, by the beginning of their path, and why: what they share is made once for each worker.
The scheduler begins with the groups that have most tests, so that none of them is left for the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """As `--dist loadgroup` does it by marks. It writes them into the ids of tests, where pytest 9.2 ignores them."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((group for path, group in TOGETHER.items() if nodeid.startswith(path)), nodeid)

    return Together(config, log)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped, and why: a missing tool or missing data hides no test."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(each.longrepr[2]).removeprefix("Skipped: ") for each in skipped)
    if reasons:
        terminalreporter.section(f"{len(skipped)} tests were skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"{count:5} {reason}")


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
