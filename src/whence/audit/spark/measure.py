"""The papers' quantities, from the rows of a trace: loss, latency, throughput, sizes, recovery, buffers, evenness of load.

`metrics(events)` gives one row per run, cluster, member (null: all members) and name:

| name | what |
|---|---|
| `published`, `received`, `delivered` | rows of that kind; a delivery counts also when it is the second one |
| `publishes_per_s`, `deliveries_per_s` | divided by the time from the first row to the last |
| `latency_p50_ms` `p90` `p99` `max` | publish to delivery at another member. `percentile_approx` (Greenwald and Khanna), rank error at most 1/`ACCURACY` of the deliveries; the maximum is exact |
| `due`, `lost`, `lost_late`, `lost_held`, `lost_never_received` | see `losses` |
| `loss` | `lost / due` |
| `dropped_<reason>` | `drop` rows: `late` (given up before it came), `overflow`, `invalid`, `two_owners` |
| `message_bytes_mean`, `message_bytes_max` | the payload of a published event |
| `control_bytes_mean`, `control_bytes_max` | control information of a published event on the wire, its share of its frame's |
| `control_entries_mean`, `control_chars_mean` | entries in use, and characters as text, of a published event's timestamp |
| `buffer_fill_mean`, `buffer_fill_max` | events that are at a member and not delivered, when one more has come |
| `sends`, `send_bytes` | `send` rows, where a writer has them (the recorder leaves them out) |
| `recovery_attempts`, `recovery_asked` | requests sent, and events they ask for (again each time) |
| `recovery_recovered`, `recovery_given_up`, `recovery_success` | events that came because they were asked for, those given up, and the share of the former in both |
| `served` | first receipts elsewhere that came from this member: what it sent that was of use |
| `<x>_cv`, `<x>_gini`, `<x>_max_over_mean` | evenness of x = `published`, `delivered`, `served`, `sends` over the members |

Deliveries by verdict are in the table `members`. Of a part of a run: `metrics(events.where("t_ns >= ..."))`.
"""  # noqa: E501

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, GroupedData, Window
from pyspark.sql import functions as F

ACCURACY = 10_000
"""Of the latency quantiles: their rank is wrong by at most 1/ACCURACY of the number of deliveries. Memory of an
aggregation grows with it."""

DROPS = ("late", "overflow", "invalid", "two-owners")
LOADS = ("published", "delivered", "served", "sends")

_GROUP = ["run", "cluster"]
_KEYS = [*_GROUP, "member"]


def metrics(events: DataFrame) -> DataFrame:
    """Loss, latency, load and sizes, measured: `run, cluster, member, name, value`."""
    return reduce(DataFrame.unionByName, (make(events) for make in (counts, latencies, losses, evenness)))


def counts(events: DataFrame) -> DataFrame:
    """What one pass over the rows gives: counts, rates, sizes, recovery."""
    asked = F.when(F.col("reason").startswith("ask "), _range_size())
    gone = F.when(F.col("reason").startswith("give up "), _range_size())
    publish, send, recover = _is("publish"), _is("send"), _is("recover")
    clock = F.when(publish, F.col("clock"))
    entries = F.size(F.filter(F.split(clock, " "), lambda entry: entry != "-"))
    summed = _scoped(events).agg(
        F.count_if(publish).alias("published"),
        F.count_if(_is("receive")).alias("received"),
        F.count_if(_is("deliver")).alias("delivered"),
        *(F.count_if(_is("drop") & (F.col("reason") == r)).alias(f"dropped_{_name(r)}") for r in DROPS),
        F.avg(F.when(publish, F.col("bytes"))).alias("message_bytes_mean"),
        F.max(F.when(publish, F.col("bytes"))).alias("message_bytes_max"),
        F.avg(F.when(publish, F.col("control"))).alias("control_bytes_mean"),
        F.max(F.when(publish, F.col("control"))).alias("control_bytes_max"),
        F.avg(F.when(_is("receive"), F.col("held"))).alias("buffer_fill_mean"),
        F.max(F.when(_is("receive"), F.col("held"))).alias("buffer_fill_max"),
        F.avg(F.when(clock.isNotNull(), entries)).alias("control_entries_mean"),
        F.avg(F.length(clock)).alias("control_chars_mean"),
        F.nullif(F.count_if(send), F.lit(0)).alias("sends"),
        F.sum(F.when(send, F.col("bytes"))).alias("send_bytes"),
        F.count_if(recover & asked.isNotNull()).alias("recovery_attempts"),
        F.coalesce(F.sum(F.when(recover, asked)), F.lit(0)).alias("recovery_asked"),
        F.count_if(_is("receive") & (F.col("reason") == "recovered")).alias("recovery_recovered"),
        F.coalesce(F.sum(F.when(recover, gone)), F.lit(0)).alias("recovery_given_up"),
        ((F.max("t_ns") - F.min("t_ns")) / 1e9).alias("span"),
    )
    seconds = F.nullif("span", F.lit(0.0))
    ended = F.col("recovery_recovered") + F.col("recovery_given_up")
    return _long(
        summed.withColumns(
            {
                "publishes_per_s": F.try_divide("published", seconds),
                "deliveries_per_s": F.try_divide("delivered", seconds),
                "recovery_success": F.try_divide("recovery_recovered", ended),
            }
        ).drop("span")
    )


def latencies(events: DataFrame) -> DataFrame:
    """From the publish of an event to its delivery at another member, in ms. Live, clocks of two machines are compared:
    a negative latency is one that is smaller than their difference, and stays in."""
    delivered = events.where(_is("deliver") & (F.col("member") != F.col("origin")))
    waits = delivered.join(_publishes(events), [*_GROUP, "event"])
    ms = (F.col("t_ns") - F.col("published_ns")) / 1e6
    summed = _scoped(waits.withColumn("ms", ms)).agg(
        F.percentile_approx("ms", [0.5, 0.9, 0.99], ACCURACY).alias("q"), F.max("ms").alias("latency_max_ms")
    )
    quantiles = {f"latency_p{p}_ms": F.col("q")[i] for i, p in enumerate((50, 90, 99))}
    return _long(summed.withColumns(quantiles).drop("q"))


def losses(events: DataFrame) -> DataFrame:
    """What members that are there at the end should have delivered and have not.

    `due`: published since the member began with nothing or with a snapshot; restarts from its own checkpoint go on with
    what it had, so all its lives since then count as one (and are named by the last). That `since` is by the clock, the
    one place where order is: of what was on its way while a joiner took its snapshot this counts nothing as due.
    `lost_late`: it came after it had been given up. `lost_held`: it came, and was neither given up nor delivered (it
    waits for something, or was dropped for another reason). `lost_never_received`: the rest of `lost`.
    """
    seats = _seats(events)
    published = _publishes(events)
    alive = seats.where("alive AND member = last_life").select(*_GROUP, "member", "since_ns")
    mine = events.where(F.col("kind").isin("deliver", "receive", "drop")).join(
        seats.where("alive").select(*_GROUP, "member", "since_ns", "last_life"), [*_GROUP, "member"]
    )
    came = (
        mine.groupBy(*_GROUP, "event", "since_ns", "last_life")
        .agg(
            F.bool_or(_is("deliver")).alias("delivered"),
            F.bool_or(_is("drop") & (F.col("reason") == "late")).alias("late"),
        )
        .join(published, [*_GROUP, "event"])
        .where("published_ns >= since_ns")
    )
    have = came.groupBy(*_GROUP, F.col("last_life").alias("member")).agg(
        F.count_if("delivered").alias("have"),
        F.count_if(F.expr("late AND NOT delivered")).alias("lost_late"),
        F.count_if(F.expr("NOT late AND NOT delivered")).alias("lost_held"),
    )
    sums = _due(published, alive).join(have, _KEYS, "left").fillna(0, ["have", "lost_late", "lost_held"])
    names = ("due", "have", "lost_late", "lost_held")
    summed = _scoped(sums).agg(*(F.sum(name).alias(name) for name in names))
    lost = F.col("due") - F.col("have")
    return _long(
        summed.withColumns(
            {
                "lost": lost,
                "lost_never_received": lost - F.col("lost_late") - F.col("lost_held"),
                "loss": F.try_divide(lost, "due"),
            }
        ).drop("have")
    )


def evenness(events: DataFrame) -> DataFrame:
    """How evenly the load lies on the members: coefficient of variation, Gini coefficient (0: all the same, towards 1:
    one has it all), and how many times the mean the busiest has. Members without any load count, too."""
    kinds = {"publish": "published", "deliver": "delivered", "send": "sends"}
    own = events.groupBy(*_KEYS).agg(*(F.count_if(_is(kind)).alias(x) for kind, x in kinds.items()))
    came = events.where(_is("receive"))
    served = came.groupBy(*_GROUP, F.col("peer").alias("member")).agg(F.count("*").alias("served"))
    per_member = own.join(served, _KEYS, "left").fillna(0, ["served"])
    loads = per_member.unpivot(tuple(_KEYS), LOADS, "load", "x")
    scope = [*_GROUP, "load"]
    rank = F.row_number().over(Window.partitionBy(*scope).orderBy("x"))
    n, total = F.count("x"), F.nullif(F.sum("x"), F.lit(0))
    summed = (
        loads.withColumn("rank", rank)
        .groupBy(*scope)
        .agg(
            F.try_divide(F.stddev_pop("x"), F.nullif(F.avg("x"), F.lit(0.0))).alias("cv"),
            (2 * F.try_divide(F.sum(F.col("rank") * F.col("x")), n * total) - (n + 1) / n).alias("gini"),
            F.try_divide(F.max("x") * n, total).alias("max_over_mean"),
        )
        .withColumn("member", F.lit(None).cast("string"))
        .unpivot((*_KEYS, "load"), ("cv", "gini", "max_over_mean"), "of", "value")
        .where("value IS NOT NULL")
        .select(*_KEYS, F.concat_ws("_", "load", "of").alias("name"), "value")
    )
    return _long(per_member.select(*_KEYS, "served")).unionByName(summed)


# -- how

_EVER = -(1 << 62)
"""Before all times."""


def _due(published: DataFrame, seats: DataFrame) -> DataFrame:
    """Events due per seat: those published since it began. They are counted, never crossed with members."""
    marks = published.select(*_GROUP, F.col("published_ns").alias("t"), F.lit(1).alias("n")).unionByName(
        seats.select(*_GROUP, F.col("since_ns").alias("t"), F.lit(0).alias("n"), "member"), allowMissingColumns=True
    )
    later = Window.partitionBy(*_GROUP).orderBy("t", "n").rowsBetween(0, Window.unboundedFollowing)
    due = marks.withColumn("due", F.sum("n").over(later))
    return due.where("member IS NOT NULL AND due > 0").select(*_KEYS, "due")


def _seats(events: DataFrame) -> DataFrame:
    """Every life of every member: which seat it belongs to (a number per address), since when events are due to that
    seat, the seat's last life, and whether it is there at the end."""
    state = _is("join") & (F.coalesce("reason", F.lit("")) != "checkpoint")
    lives = events.groupBy(*_GROUP, "member").agg(
        F.min("t_ns").alias("first_ns"),
        F.max(F.when(state, F.col("t_ns"))).alias("state_ns"),
        F.bool_or(_is("join") & (F.col("reason") == "checkpoint")).alias("goes_on"),
        F.bool_or(F.col("kind").isin("leave", "crash")).alias("ended"),
    )
    address = F.substring_index("member", "#", 1)
    lives = lives.withColumn("address", address)
    by_address = Window.partitionBy(*_GROUP, "address").orderBy("first_ns", "member")
    anew = (F.col("state_ns").isNotNull() | ~F.col("goes_on")).cast("int")
    lives = lives.withColumn("seat", F.concat_ws("/", "address", F.sum(anew).over(by_address)))
    by_seat = Window.partitionBy(*_GROUP, "seat")
    whole = by_seat.orderBy("first_ns", "member").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    nobody_after = F.lead("member").over(by_address).isNull() & ~F.col("ended")
    return lives.withColumn("last", nobody_after).select(
        *_GROUP,
        "member",
        "seat",
        F.coalesce(F.max("state_ns").over(by_seat), F.lit(_EVER)).alias("since_ns"),
        F.last("member").over(whole).alias("last_life"),
        F.bool_or("last").over(by_seat).alias("alive"),
    )


def _publishes(events: DataFrame) -> DataFrame:
    """When each event was published; the first time, should its id be used twice."""
    return events.where(_is("publish")).groupBy(*_GROUP, "event").agg(F.min("t_ns").alias("published_ns"))


def _is(kind: str) -> Column:
    return F.col("kind") == kind


def _name(text: str) -> str:
    return text.replace(" ", "_").replace("-", "_")


def _range_size() -> Column:
    """Events in the range of a `recover` row: `ask 1.0.1:7-8`, `give up 1.0.1:7: nobody has it`."""
    first, last = (
        F.try_to_number(F.regexp_extract("reason", r":(\d+)(?:-(\d+))?", i), F.lit("9" * 18)) for i in (1, 2)
    )
    return F.coalesce(last, first) - first + 1


def _scoped(rows: DataFrame) -> GroupedData:
    """Grouped by member and by all members."""
    return rows.groupingSets([[F.col(c) for c in scope] for scope in (_GROUP, _KEYS)], *_KEYS)


def _long(wide: DataFrame) -> DataFrame:
    """One row per value; what has no value has no row."""
    names = [name for name in wide.columns if name not in _KEYS]
    doubles = wide.select(*_KEYS, *(F.col(name).cast("double").alias(name) for name in names))
    return doubles.unpivot(tuple(_KEYS), tuple(names), "name", "value").where("value IS NOT NULL")
