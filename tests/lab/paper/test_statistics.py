"""From rows to statistics: with good data the claims of an experiment hold, and bad data makes each of them fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from whence.core.order import MECHANISMS
from whence.lab.paper.ccc11 import availability, fig4, fig5, theorems
from whence.lab.paper.ccc11.evaluation import FAILED, PATIENT, VARIANTS
from whence.lab.paper.claims import claims, judged
from whence.lab.paper.pco17 import alerts, fig3, headers, sweeps, variance
from whence.lab.paper.survey import convoy, table1
from whence.lab.paper.survey.table1 import BLOCKING

Row = dict[str, Any]
Change = Callable[[Row], object]


def row(seeds: int = 4, **numbers: Any) -> Row:
    """A row whose runs differ by a thousandth."""
    plain = {k: v for k, v in numbers.items() if isinstance(v, float)}
    runs = [{k: v * (1 + 0.001 * i) for k, v in plain.items()} for i in range(seeds)]
    return {**numbers, "seeds": seeds, "runs": runs}


def fails(name: str, statistics: Any) -> set[str]:
    """The claims that fail."""
    return {j.key for j in judged(name, statistics) if j.status == "fails"}


def holds(name: str, statistics: Any) -> set[str]:
    return {j.key for j in judged(name, statistics) if j.status == "holds"}


# -- Figure 4


def fig4_rows(growing: float = 0.0, size: float = -0.5, uneven: float = 1.05, repeated: float = 0.0) -> list[Row]:
    """As the paper has them; latency grows by `growing` a member more, sizes by `size` bytes."""
    found = []
    for name, c in fig4.INSTANCES:
        for n in (25, 50, 75, 100, 125):
            full = c == 0
            numbers = {
                "latency_ms": n * 2.0 if full else 10 * (n**0.15) + growing * n,
                "throughput": 1000 / n if full else 100.0,
                "message_bytes": n * 50.0 if full else 1000 + size * n,
                "busiest": uneven,
                "failed": FAILED,
                "repeated": repeated,
            }
            found.append(row(instance=name, members=n, shortest=1.0, **numbers))
    return found


def test_figure_4() -> None:
    good = fig4.statistics(fig4_rows())
    assert fails("ccc11/fig4", good) == {"size-5", "size-25"} and {"log-5", "unbounded-5"} <= holds("ccc11/fig4", good)
    assert {"log-5", "log-25", "growth-5"} <= fails("ccc11/fig4", fig4.statistics(fig4_rows(growing=1.0)))
    assert {"size-5", "size-25"} == fails("ccc11/fig4", fig4.statistics(fig4_rows(size=1.0)))
    assert {"slightly-5", "slightly-25"} <= fails("ccc11/fig4", fig4.statistics(fig4_rows(size=-6.0)))
    assert "repeated" in fails("ccc11/fig4", fig4.statistics(fig4_rows(repeated=0.01)))
    bounded = [
        {**r, "runs": [{**run, "latency_ms": 30 - 500 / r["members"]} for run in r["runs"]]} for r in fig4_rows()
    ]
    assert {"unbounded-5", "unbounded-25"} <= fails("ccc11/fig4", fig4.statistics(bounded))
    assert fails("ccc11/fig4", fig4.statistics(fig4_rows(uneven=1.6, size=-6.0))) >= {"even"}
    rows = fig4_rows()
    rows[3]["failed"], rows[4]["shortest"] = 1.1 * FAILED, 0.9
    assert {"failed", "shortest"} <= fails("ccc11/fig4", fig4.statistics(rows))
    flat = [{**r, "runs": [{**run, "latency_ms": 5.0} for run in r["runs"]]} for r in fig4_rows()]
    assert {"latency-all", "log-5", "growth-5"} <= fails("ccc11/fig4", fig4.statistics(flat))


# -- Figure 5


def fig5_rows(lost: float = 0.001, asking: float = 2.3, success: float = 98.0) -> list[Row]:
    late = {"gossip": 2.2, "causal": 2.5, "R1": asking, "R4": asking, PATIENT: 2.9}
    bad = {"gossip": 0.2, "causal": 0.01, "R1": lost, "R4": lost, PATIENT: 0.01}
    found = []
    causal = ("causal", "R1", "R4")
    for setting, loads, variants in (("uplink", (0.1, 0.5), VARIANTS), ("top", (0.5,), (*causal, PATIENT)),
                                     ("printed", (0.5,), ("R1", "R4")),
                                     ("free", (0.5,), causal)):  # fmt: skip
        for v in variants:
            for p in loads:
                one = row(setting=setting, variant=v, p=p, load=25 * p, predicted=0.99,
                          latency_rounds=late[v] * (1 + p / 10), latency_ms=late[v], lost_ordered=bad[v] * p,
                          pairs=10000.0, repeated=0.0,
                          asked=200.0 * p, overtaken=0.0, answered=2 * success * p)  # fmt: skip
                found.append(one)
    return found


def test_figure_5() -> None:
    name = "ccc11/fig5"
    good = fig5.statistics(fig5_rows())
    assert fails(name, good) == set() and {"faster-uplink-R1", "faster-free-R4", "causal-halves"} <= holds(name, good)
    assert "most-at-high" in holds(name, good)
    assert {"recovered", "printed-recovered"} <= fails(name, fig5.statistics(fig5_rows(lost=0.1)))
    slower = fails(name, fig5.statistics(fig5_rows(asking=3.5)))
    assert {"faster-uplink-R1", "faster-free-R1", "faster-patient-R4", "overhead-asking"} <= slower
    assert {"off-R1", "off-R4", "printed-success"} <= fails(name, fig5.statistics(fig5_rows(success=50.0)))
    rows = fig5_rows()
    for one in rows:
        one["runs"] = [{**run, "repeated": 0.2, "latency_ms": 100 * one["p"]} for run in one["runs"]]
        if one["variant"] == "causal":
            one["runs"] = [{**run, "lost_ordered": one["p"], "latency_rounds": 9.0} for run in one["runs"]]
    bad = fails(name, fig5.statistics(rows))
    assert {"causal-halves", "most-at-high", "repeated", "slow-ms", "overhead"} <= bad


def test_success_that_moves_away_from_what_was_predicted() -> None:
    rows = fig5_rows()
    for one in rows:
        if one["variant"] == "R1" and one["p"] == 0.5:
            one["runs"] = [{**run, "answered": 0.5 * run["asked"]} for run in one["runs"]]
    found = fig5.statistics(rows)
    assert {"off-R1", "closer-R1"} <= fails("ccc11/fig5", found) and "closer-R4" not in fails("ccc11/fig5", found)


# -- theorems, availability


def theorem_rows(success: float = 90.0, least: float = 10.0, lost: float = 0.0, requests: float = 300.0) -> list[Row]:
    common = {"members": 40, "variant": "R1", "k": 4, "crashed": 0.0, "pairs": 1000.0, "events": 100.0}
    common |= {"asked": 100.0, "overtaken": 0.0, "inversions": 0.0, "lost": 0.0, "gossip_missed": 0.1}

    def one(part: str, answered: float, **more: Any) -> Row:
        return row(part=part, **{**common, "once": False, "aging": False, "buffer": 2.0, "requests": 100.0, **more},
                   answered=answered)  # fmt: skip

    return [
        one("buffer", least, buffer=0.125),
        one("buffer", success, buffer=2.0),
        one("aging", 50.0, buffer=0.5),
        one("aging", 70.0, buffer=0.5, aging=True),
        *(one("asked", success, k=k, once=once) for k in (6, 8) for once in (True, False)),
        one("requests", 80.0, once=True),
        one("requests", 80.0, once=True, variant="R4", requests=requests),
        one("calm", 0.0, lost=lost),
    ]


def test_theorems() -> None:
    name = "ccc11/theorems"
    good = theorems.statistics(theorem_rows())
    assert {
        "lemma-5.1",
        "5.1-exact",
        "5.1-general",
        "5.1-small",
        "5.2-lemma",
        "5.2-stated",
        "aging",
        "k-times",
    } <= holds(name, good)
    assert {"5.1-protocol", "5.2-stated", "5.2-planner"} <= fails(name, theorems.statistics(theorem_rows(success=20.0)))
    assert "5.1-small" in fails(name, theorems.statistics(theorem_rows(least=89.0)))
    assert "lemma-5.1" in fails(name, theorems.statistics(theorem_rows(lost=0.1)))
    assert "k-times" in fails(name, theorems.statistics(theorem_rows(requests=900.0)))


def availability_rows(joined: float = 100.0, served: float = 98.0, sent: float = 8.0) -> list[Row]:
    common = {"tickets": 20, "alpha": 0.5, "founder": False, "reclaim_rounds": 2.5, "joins": 100.0, "died": 0.0}
    common |= {"core_joins": 98.0, "core_joined": served, "joined": joined}
    common |= {"alive_per_round": 4.0, "sent_per_round": sent}
    many = [row(4, **common, k=k, failure=0.01, share_of_limit=0.04) for k in (1, 4)]
    crashed = row(4, **{**common, "founder": True}, k=4, failure=0.01, share_of_limit=0.04)
    quiet = [row(4, **common, k=k, failure=0.0, share_of_limit=0.0) for k in (1, 2)]
    for one in (*many, crashed, *quiet):
        for run in one["runs"]:
            run.update({k: float(round(v)) for k, v in run.items() if k not in ("sent_per_round", "alive_per_round")})
    return [*many, crashed, *quiet]


def test_availability() -> None:
    name = "ccc11/availability"
    good = availability.statistics(availability_rows())
    assert {"sentence", "model", "served", "derived", "founder", "overhead-alive"} <= holds(name, good)
    assert {"printed", "overhead-ours"} & fails(name, good) == {"printed"}  # whatever is measured
    bad = fails(name, availability.statistics(availability_rows(joined=10.0, served=8.0, sent=50.0)))
    assert {"sentence", "served", "for-want", "founder", "overhead-ours"} <= bad
    assert "half-crash" in holds(name, good)
    slow = [{**r, "reclaim_rounds": 0.5} for r in availability_rows()]
    assert "half-crash" in fails(name, availability.statistics(slow))
    assert "half-crash" not in holds(name, {**good, "half-crash": []})  # no rows, no verdict


# -- PCO17


def fig3_rows(best: int, theory: float = 1.0) -> list[Row]:
    found = []
    for part, ks in (("all", fig3.KS), ("near", fig3.NEAR)):
        for n in fig3.NS:
            for k in ks:
                rate = 1e-3 * (1 + abs(k - best))
                numbers = {"exact_rate": rate, "eps_min": rate / 2, "eps_max": 2 * rate, "theory": theory}
                found.append(row(8, part=part, processes=n, keys=k, **numbers))
    return found


def test_figure_3_of_pco17() -> None:
    name = "pco17/fig3"
    good = holds(name, fig3.statistics(fig3_rows(4)))
    assert {*(f"least-{n}" for n in fig3.NS), *(f"eps-{n}" for n in fig3.NS), "bound", "optimum"} <= good
    bad = fails(name, fig3.statistics(fig3_rows(6, theory=1e-9)))
    assert {*(f"least-{n}" for n in fig3.NS), *(f"eps-{n}" for n in fig3.NS), "bound"} <= bad
    assert {f"flat-{n}" for n in fig3.NS} <= fails(name, fig3.statistics(fig3_rows(4)))


def points(x: str, values: dict[Any, float], **more: Any) -> list[Row]:
    counts = {"overtaken": 5, "unalerted4": 0, **more}
    return [{**row(8, exact_rate=v, theory=1.0), **counts, x: at} for at, v in values.items()]


def test_figures_4_to_6_of_pco17() -> None:
    by_lambda = {ms: 1e-3 if ms >= 4000 else 2e-3 if ms >= 3000 else 2e-2 for ms in sweeps.LAMBDAS}
    assert fails("pco17/fig4", sweeps.interval(points("lambda_ms", by_lambda))) == set()
    linear = {ms: 10.0 / ms if ms != 4000 else 1.0 for ms in sweeps.LAMBDAS}
    assert fails("pco17/fig4", sweeps.interval(points("lambda_ms", linear))) >= {"stable", "fast", "steep"}
    steady = {ms: 12.0 - ms / 1000 for ms in sweeps.LAMBDAS}
    assert "flat" in fails("pco17/fig4", sweeps.interval(points("lambda_ms", steady)))
    cubic = {n: (n / 1000) ** 3 for n in sweeps.AT_EACH_RATE}
    assert fails("pco17/fig5", sweeps.each_rate(points("processes", cubic))) == set()
    root = {n: (n / 1000) ** 0.5 for n in sweeps.AT_EACH_RATE}
    assert fails("pco17/fig5", sweeps.each_rate(points("processes", root))) == {"fast", "bend"}
    falling = {n: 1000 / n if n < 1000 else 0.5 if n > 2000 else 1.0 for n in sweeps.AT_ONE_RATE}
    assert fails("pco17/fig6", sweeps.one_rate(points("processes", falling))) == set()
    rising = {n: n / 1000 for n in sweeps.AT_ONE_RATE}
    assert fails("pco17/fig6", sweeps.one_rate(points("processes", rising))) == {
        "constant",
        "falls",
        "higher",
        "steady",
    }


def variance_rows(best: int = 4, each: float = 3.0, apart: float = 1.0, outside: float = 1.0) -> list[Row]:
    """As the paper has them; errors grow with the `each`th power of the load, and by `apart` from one N to the next."""

    def one(part: str, n: int, rate: float, k: int, errors: float) -> Row:
        found = row(8, part=part, processes=n, keys=k, rate=rate, exact_rate=errors, theory=0.9 * errors * outside,
                    eps_min=errors / 2, eps_max=1.1 * errors / outside)  # fmt: skip
        return {**found, "lambda_ms": round(1000 * n / rate)}

    rows = [one("fig3", n, 200, k, 1e-3 * (1 + abs(k - best))) for n in variance.NS for k in variance.KS]
    by_load = {ms: (15 - ms / 1000) / 1e4 if ms >= 4000 else 2e-3 if ms >= 3000 else 2e-2 for ms in variance.LAMBDAS}
    by_load = by_load if each > 1 else {ms: 12.0 - ms / 1000 if ms != 4000 else 30.0 for ms in by_load}
    rows += [one("fig4", 1000, 1e6 / ms, 4, errors) for ms, errors in by_load.items()]
    rows += [one("fig5", n, n / 5, 4, 1e-3 * (n / 1000) ** each) for n in variance.AT_EACH_RATE]
    at_one = {100: 4.0 / apart**3, 500: 1.0 / apart, 1000: 1.0, 2000: apart}
    return rows + [one("fig6", n, 200, 4, 1e-3 * errors) for n, errors in at_one.items()]


def test_the_other_reading_of_the_deviation() -> None:
    name = "pco17/variance"
    every = {c.key for c in claims(name)}
    assert holds(name, variance.statistics(variance_rows(outside=2.0))) == every - {"brackets"}
    assert "brackets" in holds(name, variance.statistics(variance_rows()))
    bad = fails(name, variance.statistics(variance_rows(best=2, each=0.5, apart=2.0, outside=2.0)))
    assert bad == every - {"bound"}
    assert "bound" in fails(name, variance.statistics(variance_rows(outside=0.5)))


def alert_rows(missed: int, alarms: float, unalerted: int = 0) -> list[Row]:
    found = []
    for part, key, values in (("keys", "keys", alerts.KS), ("length", "memory", alerts.LENGTHS)):
        for value in values:
            one: Row = {"part": part, "keys": 4, "memory": 40, key: value, "overtaken": 4000, "unalerted4": unalerted}
            one |= {"unalerted5": missed if value == 40 else 400 // value if missed == 0 else missed * value}
            made = row(alerts4=alarms, alerts5=alarms / 5, overtaken=1000.0)
            made["runs"] = [{**run, "unalerted5": one["unalerted5"] / 4} for run in made["runs"]]
            found.append({**made, **one, "missed5_share": one["unalerted5"] / 4000})
    return found


def test_alerts() -> None:
    good = alerts.statistics(alert_rows(0, 50_000.0))
    assert {"unalerted", "over-estimates", "fewer-false", "two-times"} <= holds("pco17/alerts", good)
    bad = fails("pco17/alerts", alerts.statistics(alert_rows(30, 5_000.0, 3)))
    assert {"unalerted", "over-estimates", "one-time", "two-times", "longer"} <= bad


# -- bytes and errors of clocks


def header_rows(
    exact: float = 0.0,
    errors: float = 1.0,
    small: int = 200,
    ticket: int = 13,
    higher: Callable[[int], float] = lambda R: 100 / R,
) -> list[Row]:
    """Errors of exact clocks and of (N, 100, 4); the bytes of a (N, 100, 4) stamp at N = 3000, and of a ticket."""
    found = []
    for n in headers.NS:
        for publishers in headers.PUBLISHERS:
            rate = errors * (5e-3 if publishers == 25 else 1e-3)
            some = [("(100, 4)", small if n == 3000 else 200, rate)] if n > 100 else []
            some += [(f"({R}, {K})", 99, rate * higher(R)) for R, K in headers.CLOCKS if R != 100]
            some += [("vector clock", 2 * n, exact)]
            some += [(f"{publishers} tickets", publishers * ticket, exact)] if publishers else []
            for clock, size, errs in some:
                plain = size // 4 if "tickets" in clock else size
                one = {"clock": clock, "processes": n, "publishers": publishers, "bytes": size, "plain_bytes": plain}
                found.append(row(8, **one, deliveries=10**6, errors=errs, exact_rate=errs))
    return found


def test_bytes_and_errors() -> None:
    good = headers.statistics(header_rows())
    assert holds("pco17/headers", good) == {c.key for c in claims("pco17/headers")}
    assert "no-error" in fails("pco17/headers", headers.statistics(header_rows(exact=1.0)))
    assert "errors" in fails("pco17/headers", headers.statistics(header_rows(errors=0.0)))
    large = headers.statistics(header_rows(small=900))
    assert fails("pco17/headers", large) == {"any-N", "of-vector-3000", "tickets-25-bytes"}
    dear = headers.statistics(header_rows(ticket=60))
    assert fails("pco17/headers", dear) == {"tickets-5", "tickets-25-counts"}
    assert fails("pco17/headers", headers.statistics(header_rows(ticket=2))) == {"tickets-25-bytes"}


def test_a_larger_clock_that_makes_more_errors() -> None:
    found = headers.statistics(header_rows(higher=lambda R: R / 100))
    assert fails("pco17/headers", found) == {"higher-R"}


# -- the survey


def table_rows(**changed: float) -> list[Row]:
    """Table 1 as the survey has it, but for what is changed."""
    at = {"first": 10.0, "wait": 0.05, "unstable": 0.0, "grow": 1.0, "few": 0.2, "chain": 8.0, "chain_grows": 0.0}
    at |= {"pause": 80.0, "square": 2.0, "stop": 0.0, "join": 8.0, "broken": 0.0, "inverted": 0.0, "encoded": 0.2}
    at |= {"undelivered": 0.0, "dropped": 0.0} | changed
    found: list[Row] = []

    def add(order: str, n: int, senders: float = 1.0, **numbers: float) -> None:
        common = {"order": order, "processes": n, "rate": 2.0, "senders": senders, "violation": ""}
        found.append({**common, **row(**numbers)})

    for n in (5, 10, 20, 40):
        size = 2.0 * n if at["grow"] else 10.0
        for order in (*BLOCKING, "first-unstable"):
            carrying = order == "first-unstable"
            control, blocked = (at["first"] * size, at["unstable"]) if carrying else (size, at["wait"])
            add(order, n, control_bytes=control, blocked=blocked, fixed_bytes=4.0 * n, multicasts=9.0,
                undelivered=at["undelivered"])  # fmt: skip
        add("physical", n, control_bytes=8.0, blocked=1.0, fixed_bytes=8.0, multicasts=9.0, undelivered=at["dropped"])
        if n > 5:
            add("subgroups", n, control_bytes=at["chain"] + at["chain_grows"] * n)
    for order, times in (("vector", 1.0), ("compact-multicast", at["few"])):
        encoded = 1.0 if order == "vector" else at["encoded"]
        add(order, 40, 0.1, fixed_bytes=160.0 * times, control_bytes=encoded, blocked=0.0)
    for n in (5, 10):
        add("view: vector", n, pause_ms=at["pause"], change_messages=n ** at["square"])
        for order in MECHANISMS:
            add(f"join: {order}", n, change_messages=at["join"], pause_ms=at["stop"])
    add("hostile: vector", 12, delivered=1000.0, inversions=at["inverted"])
    if at["broken"]:
        found[0]["violation"] = "lost"
    return found


def test_table_1() -> None:
    good = table1.statistics(table_rows())
    assert holds("survey/table1", good) == {c.key for c in claims("survey/table1")}


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({"broken": 1.0}, {"promises"}),
        ({"inverted": 1.0}, {"hostile"}),
        ({"unstable": 0.01}, {"non-blocking"}),
        ({"first": 2.0}, {"big"}),
        ({"wait": 0.0}, {"block"}),
        ({"grow": 0.0}, {"linear"}),
        ({"few": 0.8}, {"compact"}),
        ({"encoded": 1.7}, {"compact-encoded"}),
        ({"undelivered": 1.0}, {"everything"}),
        ({"dropped": 1.0}, {"everything-timed"}),
        ({"chain": 100.0}, {"interconnected"}),
        ({"chain_grows": 1.0}, {"interconnected-any"}),
        ({"pause": 5.0}, {"view-stops"}),
        ({"square": 1.0, "join": 1.0}, {"view-square"}),
        ({"stop": 30.0}, {"join-stops"}),
        ({"join": 40.0}, {"join-messages"}),
    ],
    ids=str,
)
def test_each_claim_of_table_1_fails(changed: dict[str, float], failed: set[str]) -> None:
    assert fails("survey/table1", table1.statistics(table_rows(**changed))) == failed


def convoy_rows(vector: float = 10.0, first: float = 4.0, carrying: float = 1.0, **changed: float) -> list[Row]:
    """Latency grows by these many ms a subgroup."""
    bursts, calm, price = (changed.get(key, usual) for key, usual in (("bursts", 6), ("calm", 1.0), ("price", 2.0)))
    slope = {"vector": vector, "first": first, "first-unstable": carrying}
    return [
        {
            "order": order,
            "size": size,
            "subgroup": group,
            "mean_ms": (1 + slope[order] * (group - 1)) * (1 + 0.001 * seed),
            "together": bursts if order == "vector" else calm,
            "control_bytes": 100.0 * (price if size == 6 else 1) * (1 + 0.001 * seed),
        }
        for size in (3, 6)
        for order in slope
        for seed in range(4)
        for group in (1, 2, 3, 4)
    ]


@pytest.mark.parametrize(
    ("changed", "failed"),
    [
        ({}, set()),
        ({"vector": 0.1, "first": 0.0, "carrying": 0.0}, {"convoy"}),
        ({"bursts": 1.0}, {"bursts"}),
        ({"first": 20.0}, {"less"}),
        ({"carrying": 20.0}, {"removed"}),
        ({"calm": 2.0}, {"no-bursts"}),
        ({"price": 0.9}, {"price"}),
    ],
    ids=str,
)
def test_each_claim_of_the_convoy_fails(changed: dict[str, float], failed: set[str]) -> None:
    found = convoy.statistics(convoy_rows(**changed))
    assert fails("survey/convoy", found) == failed
    assert holds("survey/convoy", found) == {c.key for c in claims("survey/convoy")} - failed
