"""One run of the array engine, from settings to counts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import numba

from whence.errors import ConfigError
from whence.lab.scale.dissemination import run_gossip
from whence.lab.scale.engine import (
    ALERTS4,
    ALERTS5,
    DELIVERED,
    EARLY,
    ERRORS,
    OVERTAKEN,
    SEEN,
    UNALERTED4,
    UNALERTED5,
    Engine,
    steps,
)
from whence.lab.scale.gossip import GossipSettings
from whence.lab.scale.jit import Progress, use_threads
from whence.lab.scale.network import Prepared, ScaleSettings, prepare

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
    alerts4: int
    """Deliveries on which Algorithm 4 raised an alert."""
    alerts5: int
    """Deliveries on which Algorithm 5 did."""
    seconds: float
    """Time of the engine: pasts, deliveries and oracle, without preparing messages or compiling."""
    deliveries_per_s: float
    overtaken: int
    """Delivered after something that depends on them; alerts should detect these."""
    unalerted4: int
    """Overtaken without an alert of Algorithm 4. Must be 0."""
    unalerted5: int
    """The same of Algorithm 5: the message that came too early was no longer in the list L."""
    p_nc: float
    """Share of deliveries that arrive before some of their past: the paper's P_nc."""
    in_flight: float
    """X: messages sent during one propagation time."""
    theory: float
    """P_nc * (1 - (1 - 1/R)^(K X))^K: the paper's bound, with the measured P_nc."""
    threads: int
    messages: int
    total_seconds: float
    """Total time, with compiling."""


def bound(p_nc: float, R: int, K: int, X: float) -> float:
    """PCO17 section 5.3: a message overtakes one of its past, and concurrent ones cover all of its K entries."""
    covered: float = (1 - (1 - 1 / R) ** (K * X)) ** K
    return p_nc * covered


def run_scale(settings: ScaleSettings, threads: int | None = None, progress: Progress | None = None) -> ScaleResult:
    """Run one setting, on all threads unless said otherwise."""
    settings.check()
    use_threads(threads)
    tell = progress or (lambda done, what: None)
    began = time.perf_counter()
    made = prepare(settings)
    _load(tell)
    worker = Engine(made)
    seconds = _drive(worker, made, tell)
    return _result(worker.counts, seconds, made, time.perf_counter() - began)


def point(settings: dict[str, Any]) -> dict[str, Any]:
    """One point of a sweep: settings by name, as for `whence scale` (and `threads`), in; settings and results by name
    out. Where there are `members`, they gossip."""
    given = dict(settings)
    threads = given.pop("threads", 1)
    try:
        if "members" in given:
            made = run_gossip(msgspec.convert(given, GossipSettings, strict=False), threads)
            return {**given, **_flat(msgspec.to_builtins(made))}
        chosen = msgspec.convert(given, ScaleSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a point of the sweep: {error}") from None
    result: dict[str, Any] = msgspec.to_builtins(run_scale(chosen, threads=threads))
    return {**given, **result}


def _flat(result: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"load": {"sent_mean": 1}}` as `{"load.sent_mean": 1}`."""
    found: dict[str, Any] = {}
    for name, value in result.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def _load(tell: Progress) -> None:
    """Compile, or load the cached code, before the time is measured."""
    compiled: Any = steps
    if compiled.signatures:
        return
    tell(0.0, "loading the engine (the first time it is compiled: half a minute)")
    tiny = ScaleSettings(processes=40, entries=8, keys=2, deliveries=2000)
    try:
        Engine(prepare(tiny)).step(10)
    except AttributeError as error:
        if "Can't get attribute" not in str(error):
            raise
        # Code cached by another version names a type that is gone. numba reads it before it compares dates.
        for index in Path(compiled.stats.cache_path).glob("*.nbi"):
            index.unlink(missing_ok=True)
        Engine(prepare(tiny)).step(10)


def _drive(worker: Engine, made: Prepared, tell: Progress) -> float:
    step = max(1000, round(STEP / made.settings.processes))
    began = time.perf_counter()
    done = 0
    while worker.step(step):
        done += step
        tell(min(1.0, done / len(made.net.send)), f"{made.settings.messages:,} messages")
    return time.perf_counter() - began


def _result(c: Any, seconds: float, made: Prepared, total: float) -> ScaleResult:
    s, deliveries = made.settings, int(c[DELIVERED])
    each = max(1, deliveries)
    p_nc = float(c[EARLY]) / each
    X = s.rate * float(made.net.base.mean()) / 1e6
    return ScaleResult(
        deliveries=deliveries,
        errors=int(c[ERRORS]),
        exact_rate=float(c[ERRORS]) / each,
        eps_min=float(c[SEEN]) / each,
        eps_max=float(c[SEEN] + c[OVERTAKEN]) / each,
        alerts4=int(c[ALERTS4]),
        alerts5=int(c[ALERTS5]),
        seconds=seconds,
        deliveries_per_s=deliveries / seconds,
        overtaken=int(c[OVERTAKEN]),
        unalerted4=int(c[UNALERTED4]),
        unalerted5=int(c[UNALERTED5]),
        p_nc=p_nc,
        in_flight=X,
        theory=bound(p_nc, s.entries, s.keys, X),
        threads=numba.get_num_threads(),
        messages=s.messages,
        total_seconds=total,
    )
