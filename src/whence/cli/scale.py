"""`whence scale`."""

from __future__ import annotations

import argparse

import msgspec

from whence.cli.show import console, facts, progress
from whence.errors import ConfigError
from whence.lab.latencies import read_latencies
from whence.lab.scale import ScaleSettings, run_scale
from whence.lab.scale.run import ScaleResult


def scale(args: argparse.Namespace) -> int:
    """One run."""
    latencies = read_latencies(args.latencies) if args.latencies else ()
    given = {"seed": args.seed, **dict(args.set)}
    try:
        settings = msgspec.structs.replace(msgspec.convert(given, ScaleSettings), latencies=latencies)
    except msgspec.ValidationError as error:
        known = ", ".join(ScaleSettings.__struct_fields__)
        raise ConfigError(f"--set: {error} (there are {known})") from None
    with progress("starting") as tell:
        result = run_scale(settings, args.jobs, progress=tell)
    if args.json:
        print(msgspec.json.encode(result).decode())
    else:
        _show(settings, result)
    return 0


def _show(s: ScaleSettings, r: ScaleResult) -> None:
    said = {
        "deliveries": f"{r.deliveries:,}",
        "delivered too early (exact)": f"{r.errors:,} = {r.exact_rate:.3g}",
        "the paper's estimates, eps_min .. eps_max": f"{r.eps_min:.3g} .. {r.eps_max:.3g}",
        "the paper's bound, with the measured P_nc": f"{r.theory:.3g}",
        "P_nc: arrived before some of its past": f"{r.p_nc:.3g}",
        "alerts of Algorithm 4": f"{r.alerts4:,}",
        "alerts of Algorithm 5": f"{r.alerts5:,}",
        f"of {r.overtaken:,} overtaken, without an alert of 4 / 5": f"{r.unalerted4:,} / {r.unalerted5:,}",
        "threads": f"{r.threads}",
        "seconds": f"{r.seconds:.2f}",
        "deliveries per second": f"{r.deliveries_per_s:,.0f}",
    }
    title = f"(N, R, K) = ({s.processes}, {s.entries}, {s.keys}), {s.rate:g} messages/s"
    console().print(facts(title, said))
