"""`whence scale`."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

import msgspec

from whence.cli.show import console, facts, progress
from whence.errors import ConfigError, UsageError
from whence.lab.latencies import read_latencies
from whence.lab.scale import GossipResult, GossipSettings, ScaleResult, ScaleSettings, run_gossip, run_scale

S = TypeVar("S", ScaleSettings, GossipSettings)
GOSSIP = ("members", "publishers", "rate", "events", "fanout", "loss", "latency", "mode", "order")
"""Settings that have an option."""


def scale(args: argparse.Namespace) -> int:
    """One run."""
    options = {name: value for name in GOSSIP if (value := getattr(args, name)) is not None}
    if args.what == "clocks" and options:
        raise UsageError(f"--{next(iter(options))} is for `whence scale gossip`; without it there is only --set")
    result: ScaleResult | GossipResult
    with progress("starting (the first run on a machine compiles for a while)") as tell:
        if args.what == "gossip":
            members = _settings(args, GossipSettings, options)
            result = run_gossip(members, args.jobs, progress=tell)
        else:
            clocks = _settings(args, ScaleSettings, {})
            result = run_scale(clocks, args.jobs, progress=tell)
    if args.json:
        print(msgspec.json.encode(result).decode())
    elif isinstance(result, GossipResult):
        _show_members(members, result)
    else:
        _show(clocks, result)
    return 0


def _settings(args: argparse.Namespace, kind: type[S], options: dict[str, Any]) -> S:
    latencies = read_latencies(args.latencies) if args.latencies else ()
    given = {"seed": args.seed, **options, **dict(args.set)}
    try:
        return msgspec.structs.replace(msgspec.convert(given, kind), latencies=latencies)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise ConfigError(f"--set: {error} (there are {known})") from None


def _show_members(s: GossipSettings, r: GossipResult) -> None:
    p = r.predicted
    hops = "" if p.latency_p50_ms is None else f"   planned: {p.latency_p50_ms:.0f} and {p.latency_p99_ms:.0f}"
    said = {
        "deliveries": f"{r.delivered:,} of {r.expected:,}; lost {r.lost:,}",
        f"brought by {'trees' if s.mode == 'tree' else 'gossip'}": f"{r.coverage:.6%}   planned: {p.coverage:.6%}",
        "events that it brought to all": f"{r.reach:.2%}   planned: {p.reach:.2%}",
        "first arrival, p50, p99, last": f"{r.arrival_ms.p50:.1f}, {r.arrival_ms.p99:.1f}, {r.arrival_ms.most:.0f} ms",
        "delivery, p50, p99, last": f"{r.latency_ms.p50:.1f}, {r.latency_ms.p99:.1f}, {r.latency_ms.most:.0f} ms{hops}",
        "waited for others": f"{r.held:,}, for {r.held_ms:.1f} ms on average, {r.held_most_ms:.0f} at most",
        "delivered before their past": f"{r.inversions:,}",
        "missed, asked for, recovered": f"{r.missed:,}, {r.requests:,} requests, {r.recovered:,}",
        "a member sends": f"{r.load.sent_mean:,.1f} copies, {r.load.sent_most:,} at most",
        "a member receives": f"{r.load.received_mean:,.1f} copies, {r.load.received_most:,} at most",
        "a delivery costs": f"{r.copies_per_delivery:.2f} copies, {r.bytes_per_delivery:,.0f} B",
        "seconds": f"{r.seconds:.1f}, {r.cpu_seconds:.1f} of processor time; {r.memory_mb:,} MB",
        "deliveries per second": f"{r.deliveries_per_s:,.0f}",
    }
    title = f"{r.events:,} events among {r.members:,} members, {r.mode}, {r.order}, fanout {r.fanout}, loss {s.loss:g}"
    console().print(facts(title, said))


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
