"""`whence plan`."""

from __future__ import annotations

import argparse

import msgspec
from rich.table import Table

from whence.cli.show import console, progress
from whence.core.config import MS
from whence.errors import ConfigError
from whence.lab import plan as planner
from whence.lab.plan import ABSOLUTE, ERRORS, ClusterPlan, PlanQuestion
from whence.lab.sim.settings import to_toml


def plan(args: argparse.Namespace) -> int:
    """Answer a question. Exit code 1: a prediction missed its stated error when it was checked."""
    if args.toml and (args.json or args.check):
        raise ConfigError("--toml prints a scenario, and nothing else: leave --json and --check out")
    names = ("members", "publishers", "rate", "loss", "crash", "target", "payload", "order")
    same = {name: getattr(args, name) for name in names}
    same["mode"] = "eager" if args.mode == "auto" else args.mode
    question = PlanQuestion(**same, latency_ns=round(args.latency * MS))
    found = planner.choose(question) if args.mode == "auto" else planner.plan_cluster(question)
    if args.toml:
        print(to_toml(planner.scenario(found)), end="")
        return 0
    if args.check:
        return _checked(args, found)
    _print(args, found)
    return 0


def _print(args: argparse.Namespace, found: ClusterPlan) -> None:
    if args.json:
        print(msgspec.json.encode(found).decode())
        return
    q = found.question
    table = Table("what", "value", "by which formula", title=f"{q.members} members, {q.publishers} publishers")
    for what, value, formula in lines(found):
        table.add_row(what, value, formula)
    show = console()
    show.print(table)
    for note in (*found.notes, *other_modes(found)):
        show.print(f"note: {note}", markup=False)


def lines(p: ClusterPlan) -> list[tuple[str, str, str]]:
    """What is printed: name, value, formula."""
    q = p.question
    good = {name: stated for name, (stated, _) in ERRORS.items()}
    counted, mode = ("hops" if q.mode == "eager" else "rounds"), ("rounds" if q.mode == "rounds" else "hops")
    theorem_1 = f"Theorem 5.1: 2 mu T = {p.B_theorem}, T = {p.needed_rounds:g} rounds, mu = {p.load:g}"
    theorem_2 = f"Theorem 5.2: 2 N p_f = {p.k_theorem}; nobody answers: < 1 - target"
    message = f"{p.sizes.fixed} + events in it x {p.sizes.frame:.0f}, by the codec"
    tail = " .. ".join(f"{ms:,.0f}" for ms in p.latency_p99_between_ms)
    traffic = f"fanout x message / round, the ring, recovery; {good['bytes_per_s']}"
    return [
        ("round", f"{p.round_ms:g} ms", "10 x latency, unless the message size binds"),
        ("fanout", str(p.fanout), "cast.sizing.choose: the cheapest that reaches all with the target probability"),
        ("termination", f"{p.termination} {counted}", f"the same; for a loss of 1-(1-x)(1-y) = {q.swallowed:.4g}"),
        ("events a message", str(p.max_events), "2 x load x termination, at least 20"),
        ("forward buffer", f"{p.forward_buffer} events", "2 x load x termination"),
        ("history", f"{p.history} ids", "2 x load x (termination + 2), at least 1024"),
        ("B, recovery buffer", f"{p.B} events", theorem_1),
        ("H and R, held back", f"{p.H} events", "max(1024, B)"),
        ("k, asked for what is missing", str(p.k), theorem_2),
        ("time to terminate", f"{p.time_to_terminate_ms:g} ms", "the duration of a PrCast"),
        ("time to recover", f"{p.time_to_recover_ms:g} ms", "the same; at least 4 latencies"),
        ("gossip message", f"{p.message_bytes:,.0f} bytes", message),
        ("sent by a member", f"{p.bytes_per_s:,.0f} bytes/s", traffic),
        ("packets a delivery", f"{p.packets_per_delivery:.3g}", f"with events: {p.event_packets_per_delivery:.3g}"),
        (f"{mode} to a member, p50 and p99", f"{p.hops_p50}, {p.hops_p99}", "cast.sizing.coverage"),
        ("latency p50", f"{p.latency_p50_ms:,.0f} ms", f"D(t) = G(t) exp(-W(t) / S); {good['latency_p50_ms']}"),
        ("latency p99", f"{p.latency_p99_ms:,.0f} ms", f"the same; {good['latency_p99_ms']} = {tail} ms"),
        ("reaches all by gossip", f"{p.reach_gossip:.7g}", f"cast.sizing.reach; {good['reach_gossip']}"),
        ("reaches all with recovery", _nines(p.reach), f"(1 - missed x unanswered)^(N-1); {good['reach']}"),
    ]


def other_modes(found: ClusterPlan) -> list[str]:
    """The same question in the other modes, in one sentence each, and which of them `--mode auto` chooses."""
    q = found.question
    said = []
    for mode in planner.MODES:
        if mode != q.mode:
            other = planner.plan_cluster(msgspec.structs.replace(q, mode=mode))
            said.append(
                f"live clusters run eager; --mode {mode}: latency p50 {other.latency_p50_ms:,.0f} ms, p99 "
                f"{other.latency_p99_ms:,.0f} ms, {other.packets_per_delivery:.3g} packets a delivery, "
                f"{other.bytes_per_s:,.0f} bytes/s sent by a member"
            )
    chosen = planner.choose(q).question.mode
    said.append(f"--mode auto chooses {chosen}" + (f": settings mode = {chosen!r}" if chosen == "tree" else ""))
    return said


def _nines(probability: float) -> str:
    return f"1 - {1 - probability:.1e}" if probability > 0.9999 else f"{probability:.6f}"


def _checked(args: argparse.Namespace, found: ClusterPlan) -> int:
    from whence.lab.paper.ccc11.planner import check

    with progress("simulating") as tick:
        [done] = check([found.question], args.seeds, args.events, None, lambda done, total: tick(done / total, ""))
    if args.json:
        print(msgspec.json.encode({"plan": found, "check": done, "within": done.within}).decode())
        return 0 if done.within else 1
    _print(args, found)
    title = f"simulated: {done.seeds} seeds, {done.events:,} events (short names: fewer bytes than above)"
    table = Table("what", "predicted", "measured", "95 % interval", "stated error", "holds", title=title)
    for c in done.compared:
        show = ("{:.5f}" if c.name in ABSOLUTE else "{:,.1f}").format
        holds = "yes" if c.within else "[bold red]no[/]"
        interval = f"{show(c.low)} .. {show(c.high)}"
        table.add_row(c.name, show(c.predicted), show(c.measured), interval, c.stated, holds)
    console().print(table)
    return 0 if done.within else 1
