"""What can be measured in a trace: latency, throughput, sizes, recovery, buffers.

`metrics(events)` gives one row per run, cluster, member (null: all members) and name:

| name | what |
|---|---|
| `published`, `received`, `delivered` | rows of that kind; a delivery counts also when it is the second one |
| `publishes_per_s`, `deliveries_per_s` | divided by the time from the first row to the last |
| `latency_p50_ms` `p90` `p99` `max` | publish to delivery at another member. `percentile_approx` (Greenwald and Khanna), rank error at most 1/`ACCURACY` of the deliveries; the maximum is exact |
| `dropped_<reason>` | `drop` rows: `late` (given up before it came), `overflow`, `invalid`, `two_owners` |
| `message_bytes_mean`, `message_bytes_max` | the payload of a published event |
| `control_bytes_mean`, `control_bytes_max` | control information of a published event on the wire, its share of its frame's |
| `control_entries_mean`, `control_chars_mean` | entries in use, and characters as text, of a published event's timestamp |
| `buffer_fill_mean`, `buffer_fill_max` | events that are at a member and not delivered, when one more has come |
| `recovery_attempts`, `recovery_asked` | requests sent, and events they ask for (again each time) |
| `recovery_recovered`, `recovery_given_up`, `recovery_success` | events that came because they were asked for, those given up, and the share of the former in both |

Deliveries by verdict, and what was lost, are in the table `members`. Of a part of a run: `metrics(events.where("t_ns >= ..."))`.
"""  # noqa: E501

from __future__ import annotations

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F

ACCURACY = 10_000
"""Of the latency quantiles: their rank is wrong by at most 1/ACCURACY of the number of deliveries. Memory of an
aggregation grows with it."""

DROPS = ("late", "overflow", "invalid", "two-owners")

_GROUP = ["run", "cluster"]
_KEYS = [*_GROUP, "member"]


def metrics(events: DataFrame) -> DataFrame:
    """Latency, throughput, sizes and recovery, measured: `run, cluster, member, name, value`."""
    return counts(events).unionByName(latencies(events))


def counts(events: DataFrame) -> DataFrame:
    """What one pass over the rows gives: counts, rates, sizes, recovery."""
    asked = F.when(F.col("reason").startswith("ask "), _range_size())
    gone = F.when(F.col("reason").startswith("give up "), _range_size())
    publish, recover = _is("publish"), _is("recover")
    clock = F.when(publish, F.col("clock"))
    entries = F.size(F.filter(F.split(clock, " "), lambda entry: entry != "-"))
    summed = _scoped(events).agg(
        F.count_if(publish).alias("published"),
        F.count_if(_is("receive")).alias("received"),
        F.count_if(_is("deliver")).alias("delivered"),
        *(F.count_if(_is("drop") & (F.col("reason") == r)).alias(f"dropped_{r.replace('-', '_')}") for r in DROPS),
        F.avg(F.when(publish, F.col("bytes"))).alias("message_bytes_mean"),
        F.max(F.when(publish, F.col("bytes"))).alias("message_bytes_max"),
        F.avg(F.when(publish, F.col("control"))).alias("control_bytes_mean"),
        F.max(F.when(publish, F.col("control"))).alias("control_bytes_max"),
        F.avg(F.when(_is("receive"), F.col("held"))).alias("buffer_fill_mean"),
        F.max(F.when(_is("receive"), F.col("held"))).alias("buffer_fill_max"),
        F.avg(F.when(clock.isNotNull(), entries)).alias("control_entries_mean"),
        F.avg(F.length(clock)).alias("control_chars_mean"),
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


def _publishes(events: DataFrame) -> DataFrame:
    """When each event was published; the first time, should its id be used twice."""
    return events.where(_is("publish")).groupBy(*_GROUP, "event").agg(F.min("t_ns").alias("published_ns"))


def _is(kind: str) -> Column:
    return F.col("kind") == kind


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
