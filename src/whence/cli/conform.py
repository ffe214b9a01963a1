"""`whence conform`."""

from __future__ import annotations

import argparse
import json
import math
from typing import Final

from whence.audit.conform import (
    FAIL,
    FEATURES,
    NOT_SUPPORTED,
    PASS,
    SCENARIOS,
    ConformReport,
    ConformSettings,
    run_suite,
)
from whence.cli.connect import run_until_stopped
from whence.cli.show import console, progress
from whence.errors import AdapterError, UsageError

STYLES: Final = {PASS: "green", FAIL: "bold red", NOT_SUPPORTED: "yellow"}


def conform(args: argparse.Namespace) -> int:
    """Run the scenarios and say what came out."""
    if args.adapter:
        from whence.cli.adapter import Adapter

        if args.system:
            raise UsageError("--adapter is a node itself: it starts no COMMAND")
        Adapter(args.order).run()
        return 0
    if not args.system:
        if args.only or args.trace:
            raise UsageError("which system? Add `-- COMMAND`, which starts one member of it")
        _teach(args.json)
        return 0
    limits = {} if args.timeout is None else {"timeout_s": args.timeout, "start_s": args.timeout}
    settings = ConformSettings(nodes=args.members, hold_s=args.hold, own_network=args.own_network, **limits)
    return run_until_stopped(_suite(args, settings), unfinished=True)


async def _suite(args: argparse.Namespace, settings: ConformSettings) -> int:
    """The scenarios; a signal ends the processes of the system first."""
    with progress("starting", every=math.inf) as tick:
        report = await run_suite(args.system, settings, args.only, args.trace, lambda name: tick(None, name))
    if args.json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
    else:
        _show(report)
    if report.error is not None:
        raise AdapterError(report.error)
    return 0 if report.ok else 1


def _teach(as_json: bool) -> None:
    """The scenarios and the features, for people who write an adapter."""
    if as_json:
        told = {s.name: {"needs": list(s.needs), "story": s.story, "breaks": s.breaks} for s in SCENARIOS.values()}
        print(json.dumps({"scenarios": told, "features": FEATURES}, ensure_ascii=False))
        return
    for scenario in SCENARIOS.values():
        needs = f" (needs {', '.join(scenario.needs)})" if scenario.needs else ""
        _say(f"{scenario.name}{needs}", "bold")
        _say(f"  {scenario.story}\n  Finds: {scenario.breaks}.\n")
    _say("What a system may claim in its init_ok:", "bold")
    for name, meaning in FEATURES.items():
        _say(f"  {name:<10} {meaning}")


def _show(report: ConformReport) -> None:
    if report.features:
        _say(f"claims {', '.join(report.features)}")
    for verdict in report.verdicts:
        took = f"{verdict.seconds:5.1f} s" if verdict.verdict != NOT_SUPPORTED else ""
        _say(f"{verdict.verdict:<13} {verdict.scenario:<15} {took}".rstrip(), STYLES[verdict.verdict])
        for text in (*verdict.reasons, *(f"note: {note}" for note in verdict.notes)):
            _say(f"    {text}")
        for member, values in verdict.deliveries.items() if verdict.verdict == FAIL else ():
            _say(f"    {member} delivered: {', '.join(values) or 'nothing'}")
    counted = [v.verdict for v in report.verdicts]
    if counted:
        _say(", ".join(f"{counted.count(v)} {v}" for v in STYLES if v in counted))


def _say(text: str, style: str | None = None) -> None:
    console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)
