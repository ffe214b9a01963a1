"""`whence scale`."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

import msgspec

from whence.cli.show import console, facts, progress
from whence.errors import ConfigError, UsageError
from whence.lab.latencies import read_latencies
from whence.lab.scale import GossipResult, GossipSettings, ScaleResult, ScaleSettings, run_gossip, run_scale
from whence.lab.scale.picture import draw

S = TypeVar("S", ScaleSettings, GossipSettings)
GOSSIP = ("members", "publishers", "rate", "events", "fanout", "loss", "latency", "mode", "order", "plot")
"""Options that only gossip has; all but the last are settings."""


def scale(args: argparse.Namespace) -> int:
    """One run."""
    given = {name: value for name in GOSSIP if (value := getattr(args, name)) is not None}
    if given and args.what == "clocks":
        raise UsageError(f"--{next(iter(given))} is for `whence scale gossip`; without it there is only --set")
    file = given.pop("plot", None)
    result: ScaleResult | GossipResult
    with progress("starting (the first run on a machine compiles for a while)") as tell:
        if args.what == "clocks":
            clocks = _settings(args, ScaleSettings, {})
            result = run_scale(clocks, args.jobs, progress=tell)
            title, said = _clocks(clocks, result)
        else:
            members = _settings(args, GossipSettings, given)
            result = run_gossip(members, args.jobs, progress=tell)
            title, said = _members(members, result)
            if file:
                draw(members, file)
    print(msgspec.json.encode(result).decode()) if args.json else console().print(facts(title, said))
    return 0


def _settings(args: argparse.Namespace, kind: type[S], options: dict[str, Any]) -> S:
    latencies = read_latencies(args.latencies) if args.latencies else ()
    given = {"seed": args.seed, **options, **dict(args.set)}
    try:
        return msgspec.structs.replace(msgspec.convert(given, kind), latencies=latencies)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise ConfigError(f"--set: {error} (there are {known})") from None


def _members(s: GossipSettings, r: GossipResult) -> tuple[str, dict[str, str]]:
    p, came, took = r.predicted, r.arrival_ms, r.latency_ms
    planned = "" if p.latency_p50_ms is None else f"   planned: {p.latency_p50_ms:.0f} and {p.latency_p99_ms:.0f}"
    said = {
        "deliveries": f"{r.delivered:,} of {r.expected:,}; lost {r.lost:,}",
        f"brought by {'trees' if s.mode == 'tree' else 'gossip'}": f"{r.coverage:.6%}   planned: {p.coverage:.6%}",
        "events that it brought to all": f"{r.reach:.2%}   planned: {p.reach:.2%}",
        "first arrival, p50, p99, last": f"{came.p50:.1f}, {came.p99:.1f}, {came.most:.0f} ms",
        "delivery, p50, p99, last": f"{took.p50:.1f}, {took.p99:.1f}, {took.most:.0f} ms{planned}",
        "waited for others": f"{r.held:,}, for {r.held_ms:.1f} ms on average, {r.held_most_ms:.0f} at most",
        "delivered before their past": f"{r.inversions:,}",
        "missed, asked for, recovered": f"{r.missed:,}, {r.requests:,} requests, {r.recovered:,}",
        "a member sends, mean, most": f"{r.load.sent_mean:,.1f} and {r.load.sent_most:,} copies",
        "a member receives": f"{r.load.received_mean:,.1f} and {r.load.received_most:,}",
        "a delivery costs": f"{r.copies_per_delivery:.2f} copies, {r.bytes_per_delivery:,.0f} B",
        "deliveries per second": f"{r.deliveries_per_s:,.0f}, for {r.seconds:.1f} s; {r.memory_mb:,} MB",
    }
    return f"{r.events:,} events among {r.members:,} members, {r.mode}, {r.order}, fanout {r.fanout}", said


def _clocks(s: ScaleSettings, r: ScaleResult) -> tuple[str, dict[str, str]]:
    said = {
        "deliveries": f"{r.deliveries:,}",
        "delivered too early (exact)": f"{r.errors:,} = {r.exact_rate:.3g}",
        "the paper's estimates, eps_min .. eps_max": f"{r.eps_min:.3g} .. {r.eps_max:.3g}",
        "the paper's bound, with the measured P_nc": f"{r.theory:.3g}",
        "P_nc: arrived before some of its past": f"{r.p_nc:.3g}",
        "alerts of Algorithm 4": f"{r.alerts4:,}",
        "alerts of Algorithm 5": f"{r.alerts5:,}",
        f"of {r.overtaken:,} overtaken, without an alert of 4 / 5": f"{r.unalerted4:,} / {r.unalerted5:,}",
        f"seconds, {r.threads} threads": f"{r.seconds:.2f}",
        "deliveries per second": f"{r.deliveries_per_s:,.0f}",
    }
    return f"(N, R, K) = ({s.processes}, {s.entries}, {s.keys}), {s.rate:g} messages/s", said
