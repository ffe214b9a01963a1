"""One run of the array engine, from settings to counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numba

from whence.errors import ConfigError
from whence.lab.scale import fast, general
from whence.lab.scale.fast import TOO_LONG, Fast
from whence.lab.scale.general import (
    ALERTS4,
    ALERTS5,
    DELIVERED,
    EARLY,
    ERRORS,
    OVERTAKEN,
    SEEN,
    UNALERTED4,
    UNALERTED5,
    General,
)
from whence.lab.scale.network import Prepared, ScaleSettings, prepare

Progress = Callable[[float, str], None]
"""Called with the share that is done, and the current step."""

SAMPLE = 1e6
"""The fast engine has no alerts: the general one counts them on this many of the same deliveries."""

STEP = 2e7
"""Deliveries between two progress reports."""


class ScaleResult(msgspec.Struct, frozen=True):
    """The result of a run."""

    deliveries: int
    """Counted deliveries: after the warm-up and before the cool-down, at every receiver but the sender."""
    errors: int
    """Deliveries while some of the message's true past was missing."""
    exact_rate: float
    """errors / deliveries."""
    eps_min: float
    """The paper's lower estimate: wrong by a vector clock that takes the maximum after each error (PCO17 5.4.1)."""
    eps_max: float
    """The paper's upper estimate: those, and every delivery overtaken by an earlier error."""
    alerts4: int | None
    """Deliveries on which Algorithm 4 raised an alert, of `alerts_deliveries`."""
    alerts5: int | None
    """Deliveries on which Algorithm 5 did."""
    seconds: float
    """Time of the engine: pasts, deliveries and oracle, without preparing messages, the sample for alerts, or
    compiling."""
    deliveries_per_s: float
    alerts_deliveries: int
    """Deliveries on which alerts were counted: all, or the first of the same run (see `ScaleSettings.alerts`)."""
    overtaken: int
    """Delivered after something that depends on them; alerts should detect these."""
    unalerted4: int | None
    """Overtaken among `alerts_deliveries`, without an alert of Algorithm 4. Must be 0."""
    unalerted5: int | None
    """The same of Algorithm 5: the message that came too early was no longer in the list L."""
    overtaken_sample: int | None
    """Overtaken among `alerts_deliveries`."""
    p_nc: float
    """Share of deliveries that arrive before some of their past: the paper's P_nc."""
    in_flight: float
    """X: messages sent during one propagation time."""
    theory: float
    """P_nc * (1 - (1 - 1/R)^(K X))^K: the paper's bound, with the measured P_nc."""
    engine: str
    """`fast` or `general`."""
    threads: int
    messages: int
    total_seconds: float
    """Total time, with compiling."""


def bound(p_nc: float, R: int, K: int, X: float) -> float:
    """PCO17 section 5.3: a message overtakes one of its past, and concurrent ones cover all of its K entries."""
    covered: float = (1 - (1 - 1 / R) ** (K * X)) ** K
    return p_nc * covered


def run_scale(
    settings: ScaleSettings,
    threads: int | None = None,
    part: tuple[int, int] = (0, 1),
    engine: str = "auto",
    progress: Progress | None = None,
    sample: bool = True,
) -> ScaleResult:
    """Run one setting. `part` (i, n): only the i-th n-th of the receivers; the counts of all parts add up to the whole.

    `sample`: after the fast engine, count alerts on a part of the run. `engine`: `fast` supports only the paper's
    network, `general` everything; `auto` prefers the fast one.
    """
    settings.check()
    if engine not in ("auto", "fast", "general"):
        raise ConfigError(f"engine: {engine!r} is not auto, fast or general")
    if not 0 <= part[0] < part[1] <= settings.processes:
        raise ConfigError(f"part: {part[0]} of {part[1]}: want 0 <= i < n <= processes")
    if engine == "fast" and not settings.plain:
        raise ConfigError("engine: fast does not support loss, churn, recorded latencies or alerts on every delivery")
    most: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    if threads is not None and not 1 <= threads <= most:
        raise ConfigError(f"threads: {threads} is not from 1 to {most}")
    numba.set_num_threads(threads or most)
    tell = progress or (lambda done, what: None)
    began = time.perf_counter()
    made = prepare(settings)
    counts, seconds, judged, used = None, 0.0, None, "general"
    quick = settings.plain and settings.rate >= 1 and settings.processes >= 32 and engine == "auto"
    if quick or engine == "fast":
        _load(fast.judge, tell)
        worker: Any = Fast(made, part)
        seconds = _drive(worker, made, tell)
        if not worker.counts[TOO_LONG]:
            counts, used = worker.counts, "fast"
            judged = _sample(settings, part, tell) if sample else None
        elif engine == "fast":
            raise ConfigError("rate: too many messages in flight for the fast engine; use the general one")
    if counts is None:
        _load(general.steps, tell)
        worker = General(made, part)
        seconds = _drive(worker, made, tell)
        counts = judged = worker.counts
    return _result(settings, counts, judged, seconds, used, made, time.perf_counter() - began)


def _load(function: Any, tell: Progress) -> None:
    """Compile, or load the cached code, before the time is measured."""
    if function.signatures:
        return
    tell(0.0, "loading the engine (the first time it is compiled: half a minute)")
    try:
        _first_steps(function)
    except AttributeError as error:
        if "Can't get attribute" not in str(error):
            raise
        # Code cached by another version names a type that is gone. numba reads it before it compares dates.
        for index in Path(function.stats.cache_path).glob("*.nbi"):
            index.unlink(missing_ok=True)
        _first_steps(function)


def _first_steps(function: Any) -> None:
    tiny = prepare(ScaleSettings(processes=40, entries=8, keys=2, deliveries=2000))
    worker: Any = Fast(tiny) if function is fast.judge else General(tiny)
    worker.step(10)


def _drive(worker: Any, made: Prepared, tell: Progress) -> float:
    step = max(1000, round(STEP / made.settings.processes))
    began = time.perf_counter()
    done = 0
    while worker.step(step):
        done += step
        tell(min(1.0, done / len(made.net.send)), f"{made.settings.messages:,} messages")
    return time.perf_counter() - began


def _sample(settings: ScaleSettings, part: tuple[int, int], tell: Progress) -> Any:
    """Repeat the first messages of the run with alerts."""
    few = msgspec.structs.replace(settings, deliveries=min(settings.deliveries, SAMPLE), alerts=True)
    _load(general.steps, tell)
    worker = General(prepare(few), part)
    _drive(worker, worker.run, lambda done, what: tell(done, "alerts, on a sample"))
    return worker.counts


def _result(
    s: ScaleSettings, c: Any, judged: Any, seconds: float, used: str, made: Prepared, total: float
) -> ScaleResult:
    deliveries = int(c[DELIVERED])
    each = max(1, deliveries)
    p_nc = float(c[EARLY]) / each
    X = s.rate * float(made.net.base.mean()) / 1e6
    return ScaleResult(
        deliveries=deliveries,
        errors=int(c[ERRORS]),
        exact_rate=float(c[ERRORS]) / each,
        eps_min=float(c[SEEN]) / each,
        eps_max=float(c[SEEN] + c[OVERTAKEN]) / each,
        alerts4=None if judged is None else int(judged[ALERTS4]),
        alerts5=None if judged is None else int(judged[ALERTS5]),
        seconds=seconds,
        deliveries_per_s=deliveries / seconds,
        alerts_deliveries=0 if judged is None else int(judged[DELIVERED]),
        overtaken=int(c[OVERTAKEN]),
        unalerted4=None if judged is None else int(judged[UNALERTED4]),
        unalerted5=None if judged is None else int(judged[UNALERTED5]),
        overtaken_sample=None if judged is None else int(judged[OVERTAKEN]),
        p_nc=p_nc,
        in_flight=X,
        theory=bound(p_nc, s.entries, s.keys, X),
        engine=used,
        threads=numba.get_num_threads(),
        messages=s.messages,
        total_seconds=total,
    )
