"""One point of a sweep on the array engine."""

from __future__ import annotations

from typing import Any

import msgspec

from whence.errors import ConfigError
from whence.lab.scale.network import ScaleSettings
from whence.lab.scale.run import run_scale


def point(settings: dict[str, Any]) -> dict[str, Any]:
    """Run one point: settings by name, as for `whence scale` (and `threads`), in; settings and results by name out."""
    given = dict(settings)
    threads = given.pop("threads", 1)
    try:
        chosen = msgspec.convert(given, ScaleSettings, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"a point of the sweep: {error}") from None
    result: dict[str, Any] = msgspec.to_builtins(run_scale(chosen, threads=threads))
    return {**given, **result}
