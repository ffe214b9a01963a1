"""`whence plan`."""

from __future__ import annotations

import argparse
from typing import Literal

import msgspec
from rich.table import Table

from whence.cli.show import console, progress
from whence.core.config import MS
from whence.errors import ConfigError
from whence.lab import plan as planner
from whence.lab.plan import ERRORS, ClusterPlan, PlanQuestion
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
    for note in (*found.notes, *other_mode(found)):
        show.print(f"note: {note}", markup=False)


def lines(p: ClusterPlan) -> list[tuple[str, str, str]]:
    """What is printed: name, value, formula."""
    q = p.question
    good = {name: error.text for name, error in ERRORS.items()}
    theorem_1 = f"Theorem 5.1: 2 mu T = {p.B_theorem}, T = {p.needed_rounds:g} rounds, mu = {p.load:g}"
    theorem_2 = f"Theorem 5.2: 2 N p_f = {p.k_theorem}; nobody answers: < 1 - target"
    tail = " .. ".join(f"{ms:,.0f}" for ms in p.latency_p99_between_ms)
    traffic = f"rounds, a push a copy, the ring, recovery; {good['bytes_per_s']}"
    return [
        ("round", f"{p.round_ms:g} ms", "10 x latency"),
        ("fanout", str(p.fanout), "cast.sizing.choose: the cheapest that reaches all with the target probability"),
        ("termination", f"{p.termination} hops", f"the same; for a loss of 1-(1-x)(1-y) = {q.swallowed:.4g}"),
        ("B, recovery buffer", f"{p.B} events", theorem_1),
        ("k, asked for what is missing", str(p.k), theorem_2),
        ("time to terminate", f"{p.time_to_terminate_ms:g} ms", "the duration of a PrCast"),
        ("time to recover", f"{p.time_to_recover_ms:g} ms", "10 rounds; at least 4 latencies"),
        ("sent by a member", f"{p.bytes_per_s:,.0f} bytes/s", traffic),
        ("packets a delivery", f"{p.packets_per_delivery:.3g}", "copies of the event, rounds, announcements"),
        ("latency p50", f"{p.latency_p50_ms:,.0f} ms", f"hops x latency; {good['latency_p50_ms']}"),
        ("latency p99", f"{p.latency_p99_ms:,.0f} ms", f"the same, or recovered; {good['latency_p99_ms']} = {tail} ms"),
        ("reaches all by gossip", f"{p.reach_gossip:.7g}", f"cast.sizing; {good['reach_gossip']}"),
        ("reaches all with recovery", _nines(p.reach), f"(1 - missed x unanswered)^(N-1); {good['reach']}"),
    ]


def other_mode(found: ClusterPlan) -> list[str]:
    """The same question in the other mode, and which of the two `--mode auto` chooses."""
    q = found.question
    mode: Literal["eager", "tree"] = "tree" if q.mode == "eager" else "eager"
    other = planner.plan_cluster(msgspec.structs.replace(q, mode=mode))
    chosen = planner.choose(q).question.mode
    return [
        f"live clusters run eager; --mode {mode}: latency p50 {other.latency_p50_ms:,.0f} ms, p99 "
        f"{other.latency_p99_ms:,.0f} ms, {other.packets_per_delivery:.3g} packets a delivery, "
        f"{other.bytes_per_s:,.0f} bytes/s sent by a member",
        f"--mode auto chooses {chosen}" + (f": settings mode = {chosen!r}" if chosen == "tree" else ""),
    ]


def _nines(probability: float) -> str:
    return f"1 - {1 - probability:.1e}" if probability > 0.9999 else f"{probability:.6f}"


def _checked(args: argparse.Namespace, found: ClusterPlan) -> int:
    from whence.lab.paper.ccc11.planner import check

    with progress("simulating") as tick:
        [done] = check([found.question], args.seeds, args.events, lambda done, total: tick(done / total, ""))
    within = all(c["within"] for c in done["compared"])
    if args.json:
        print(msgspec.json.encode({"plan": found, "check": done, "within": within}).decode())
        return 0 if within else 1
    _print(args, found)
    title = f"simulated: {done['seeds']} seeds, {done['events']:,} events (short names: fewer bytes than above)"
    table = Table("what", "predicted", "measured", "95 % interval", "stated error", "holds", title=title)
    for c in done["compared"]:
        error = ERRORS[c["name"]]
        predicted, measured, low, high = (
            ("{:.5f}" if error.absolute else "{:,.1f}").format(c[key])
            for key in ("predicted", "measured", "low", "high")
        )
        holds = "yes" if c["within"] else "[bold red]no[/]"
        table.add_row(c["name"], predicted, measured, f"{low} .. {high}", error.text, holds)
    console().print(table)
    return 0 if within else 1
