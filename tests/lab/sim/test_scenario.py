"""Scenario files: strict, exact, and the same again after writing them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from whence.errors import ConfigError
from whence.lab.sim.actions import KINDS, Crash, Partition, PublishAction, describe, show
from whence.lab.sim.chaos import expand
from whence.lab.sim.scenario import dump, load, parse
from whence.lab.sim.settings import parse_duration, parse_size, show_duration

SCENARIOS = sorted((Path(__file__).parents[3] / "src" / "whence" / "lab" / "scenarios").glob("*.toml"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("foo = 1", "line 1: unknown key 'foo'; allowed here: about, absent"),
        ("[network]\nlos = 0.1", "line 2: unknown key 'network.los'; allowed here: cities, dup"),
        ("members = 4\n[network]\nloss = 2", "line 3: expected `float` <= 1.0 - at `network.loss`"),
        ("round = 3", "round: 3 is not a duration"),
        ('round = "3 parsecs"', "is not a duration"),
        ('round = "0s"', "round: must be longer than 0"),
        ('members = "many"', "members"),
        ("members = 0", "members"),
        ('members = ["a", "a"]', "same name"),
        ('[[fault]]\nkind = "meteor"\nat = "1s"', "line 2: fault[0].kind: 'meteor' is not a kind of action; one of"),
        ('[[fault]]\nkind = "crash"\nat = "1s"', "who"),
        ('[[fault]]\nkind = "crash"\nat = "1s"\nwho = "zz"', "no process is called 'zz'; there are: n0"),
        (
            'fault = [\n {kind = "found", who = "n0", at = "1s"},\n # x\n {kind = "crash", who = "zz", at = "2s"},\n]',
            "line 4: fault[1] (crash at 2s): no process is called 'zz'",
        ),
        (
            '[[fault]]\nkind = "crash"\nwho = "n1"\nat = "1s"\n\n[[fault]]\nkind = "x"\nat = "1s"',
            "line 7: fault[1].kind",
        ),
        ('[[fault]]\nkind = "crash"\nat = "1s"\nwho = "n1"\nwhere = "x"', "unknown key 'fault[0].where'"),
        ('[[fault]]\nkind = "hostile"\nat = "1s"\nwho = "n1"', "wire = true"),
        ('[cluster]\norder = "sorted"', "cluster main: order must be one of"),
        ("[cluster]\norder = { causal = 9 }", "order shares do not fit"),
        ("[cluster]\ncoordinators = 6", "6 coordinators of 5 members"),
        ('[cluster]\nfounder = "n9"', "not a member"),
        ('[[cluster]]\nname = "a"\n[[cluster]]\nname = "a"', "a name of its own"),
        ("[cluster.workload]\nrate = 1\nper_second = 1", "give one"),
        ('[network]\nlatency = "recorded"', "network.file"),
        ("fault = 1", "[[fault]]"),
        ("= 1", "not TOML"),
    ],
)
def test_a_bad_scenario_is_refused_with_the_file_and_the_key(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(text, "some.toml")
    assert str(error.value).startswith("some.toml: ") and said in str(error.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read scenario .*nothing\.toml: No such file"):
        load(tmp_path / "nothing.toml")


@given(st.integers(0, 10**15))
def test_durations_are_exact(ns: int) -> None:
    assert parse_duration(show_duration(ns), "x") == ns


def test_quantities() -> None:
    assert parse_duration("1.5s", "x") == 1_500_000_000
    assert parse_duration("0.1ms", "x") == 100_000
    assert parse_duration("3r", "x", 200) == 600
    assert parse_size("64KiB", "x") == 65536
    with pytest.raises(ConfigError):
        parse_duration("3r", "x")  # rounds of what?
    with pytest.raises(ConfigError):
        parse_size("64 bananas", "x")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.stem)
def test_every_packaged_scenario_is_read_and_written_again(path: Path) -> None:
    loaded = load(path)
    assert loaded.scenario.about
    again = parse(dump(loaded))
    assert msgspec.structs.replace(again, path=str(path)) == loaded
    assert expand(again, 5) == expand(loaded, 5)


def test_every_kind_of_action_can_be_said_and_written() -> None:
    text = "wire = true\n" + "\n".join(
        f'[[fault]]\nat = "{i}s"\nkind = "{kind}"\n' + fields
        for i, (kind, fields) in enumerate(
            [
                ("crash", 'who = "n1"\nfor = "2s"\ndisk = true'),
                ("start", 'who = "n1"'),
                ("leave", 'who = "n1"\nfor = "1s"'),
                ("coordinate", 'who = "n1"\ncluster = "main"'),
                ("resign", 'who = "n1"'),
                ("found", 'who = "n0"'),
                ("partition", 'who = ["n1", "n2"]\nfor = "1s"\noneway = true'),
                ("cut", 'src = "n1"\ndst = "n2"'),
                ("slow", 'src = "n1"\ndst = "n2"\nby = "70ms"'),
                ("clock", 'who = "n1"\ndrift = -300\njump = "5ms"'),
                ("hostile", 'who = "n1"\nsender = "n2"'),
                ("lie", 'who = "n1"\nmessages = 3'),
                ("move", 'who = "n1"\nentries = 100\nkeys = 4'),
                ("publish", 'who = "n1"\nevents = 3'),
            ]
        )
    )
    loaded = parse(text)
    assert {type(a) for a in loaded.faults} == set(KINDS.values())
    assert parse(dump(loaded)) == loaded
    assert len(show(loaded.faults).splitlines()) == len(KINDS)
    assert describe(loaded.faults[0]) == "n1 crashes for 2s, back with its disk"


CHAOS = """
members = 8
duration = "60s"
[cluster.workload]
rate = 0.5
[chaos]
crash = "2s"
partition = "5s"
cut = "3s"
slow = "3s"
leave = "9s"
churn = "2s"
clock = "5s"
spare = ["n0"]
"""


def test_chaos_is_a_plain_list_drawn_from_the_seed() -> None:
    loaded = parse(CHAOS)
    schedule = expand(loaded, 3)
    assert schedule == expand(loaded, 3) != expand(loaded, 4)
    assert list(schedule) == sorted(schedule, key=lambda a: a.at)
    end = loaded.scenario.duration
    assert all(a.at + (getattr(a, "lasts", None) or 0) <= end for a in schedule)
    assert not any(isinstance(a, Crash) and a.who == "n0" for a in schedule)
    kinds = {type(a).__struct_config__.tag for a in schedule}
    assert kinds == {"crash", "partition", "cut", "slow", "leave", "coordinate", "resign", "clock", "publish"}


def test_one_kind_of_chaos_does_not_move_another() -> None:
    one = [a for a in expand(parse(CHAOS), 3) if isinstance(a, Partition)]
    other = [a for a in expand(parse(CHAOS.replace('crash = "2s"', "")), 3) if isinstance(a, Partition)]
    assert one == other != []


def test_the_workload_has_the_rate_it_says() -> None:
    text = 'members = 4\nduration = "200s"\n[cluster]\ncoordinators = 2\n'
    loaded = parse(text + '[cluster.workload]\nrate = 0.25\nbatch = 2\nstart = "0s"')
    publishes = [a for a in expand(loaded, 1) if isinstance(a, PublishAction)]
    assert {p.who for p in publishes} == {"n0", "n1"}
    assert sum(p.events for p in publishes) == pytest.approx(0.25 * 2 * 2000, rel=0.15)
    capped = msgspec.structs.replace(
        loaded.scenario.cluster[0], workload=msgspec.structs.replace(loaded.scenario.cluster[0].workload, total=11)
    )
    scenario = msgspec.structs.replace(loaded.scenario, cluster=(capped,))
    assert (
        sum(
            p.events
            for p in expand(msgspec.structs.replace(loaded, scenario=scenario), 1)
            if isinstance(p, PublishAction)
        )
        == 12
    )


def test_orders_are_dealt_out_by_number_and_share() -> None:
    scenario = parse(
        'members = 10\n[cluster]\norder = { reliable = 0.5, causal = 3, fifo = 0.2 }\norder_of = { n4 = "unordered" }'
    ).scenario
    orders = scenario.orders(scenario.cluster[0], 1)
    assert orders["n4"] == "unordered"
    dealt = [o for n, o in orders.items() if n != "n4"]
    assert len(dealt) == 9 and dealt.count("causal") in (2, 3) and dealt.count("fifo") in (1, 2)
    assert orders == scenario.orders(scenario.cluster[0], 1)
