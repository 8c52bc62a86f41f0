"""Replays on a real broker: corrected logic from raw beside the old, and what differs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.connector_topics import Sent, Topics
from tests.pipeline.transforming import read_topic, run_once, through_passing_faults, transform_in

from ottla.pipeline.comparing import Difference, compare
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.replay import replay
from ottla.pipeline.stage import Context

LOGIC = """
from ottla.pipeline.transform.parts import keep, parse_json, route, write_json

def clean(raw):
    rows = parse_json(raw, "id long, price double, country string", required=["id"])
    rows = keep(rows, "data.price > LOWEST")
    rows = rows.withColumn("data", rows.data.withField("price", rows.data.price * FACTOR))
    rows = rows.withColumn("key", rows.data.id.cast("string"))
    rows = route(rows, "case when data.country = 'NO' then 'PREFIX-norway' end")
    return write_json(rows, "data")
"""


@pytest.fixture
def write_logic(context: Context, topic_name: str) -> Callable[..., None]:
    def write(lowest: float, factor: object) -> None:
        text = (
            LOGIC.replace("LOWEST", str(lowest)).replace("FACTOR", str(factor)).replace("PREFIX", topic_name)
        )
        (Path(context.folder) / "logic.py").write_text(text)

    return write


def order(number: int, price: float, country: str = "SE") -> Sent:
    value = json.dumps({"id": number, "price": price, "country": country}).encode()
    return Sent(value, timestamp_ms=1_772_366_400_000 + number * 1000)


def test_corrected_logic_replays_beside_the_old_and_the_differences_are_counted(
    spark: SparkSession,
    context: Context,
    broker: RunningBroker,
    topic_name: str,
    write_logic: Callable[..., None],
) -> None:
    topics = Topics(broker.bootstrap)
    raw, to, dead, norway, new = (
        f"{topic_name}-{name}" for name in ("raw", "orders", "dead", "norway", "orders-2")
    )
    for topic in (raw, to, dead, norway, f"{new}-{norway}"):
        topics.create(topic)
    transform = transform_in(context, source=raw, to=to, dead_letters=dead, function="logic.py:clean")
    topics.produce(raw, [order(1, 0), order(2, 1), order(3, 2), Sent(b"nope"), order(5, 3, "NO")])
    write_logic(lowest=0.5, factor=1)
    run_once(spark, transform)
    before = read_topic(topics.bootstrap, to)
    # Corrected: order 1 is wanted, order 2 is the same, order 3 ... all prices of more than 1 were wrong.
    write_logic(lowest=-1, factor="(1 + (rows.data.price > 1).cast('int'))")
    orders, letters, routed = through_passing_faults(lambda: replay(spark, transform, to=new))

    assert (orders.old_topic, orders.new_topic) == (to, new)
    assert (orders.equal, orders.changed, orders.added, orders.removed) == (1, 1, 1, 0)
    added, changed = orders.examples
    assert added == Difference("added", (raw, 0, 0), b"1", None, b'{"id":1,"price":0.0,"country":"SE"}')
    assert changed.origin == (raw, 0, 2)
    assert (changed.old, changed.new) == (
        b'{"id":3,"price":2.0,"country":"SE"}',
        b'{"id":3,"price":4.0,"country":"SE"}',
    )
    assert (letters.new_topic, letters.equal, letters.changed) == (f"{new}-{dead}", 1, 0)
    assert (routed.new_topic, routed.equal, routed.changed) == (f"{new}-{norway}", 0, 1)
    assert read_topic(topics.bootstrap, to) == before

    # Once more: it takes only what has come since, which the transform in use has not.
    topics.produce(raw, [order(6, 1)])
    again = through_passing_faults(lambda: replay(spark, transform, to=new))[0]
    assert (again.equal, again.changed, again.added, again.removed) == (1, 1, 2, 0)
    # From a time: nothing before it is compared.
    late_from = "2026-03-01T12:00:03Z"
    late = through_passing_faults(lambda: replay(spark, transform, to=f"{new}-late", from_=late_from))[0]
    assert (late.equal, late.changed, late.added, late.removed) == (0, 1, 1, 0)

    write_logic(lowest=0, factor=1)
    with pytest.raises(PipelineError, match="holds records that are not of this replay"):
        replay(spark, transform, to=new)
    with pytest.raises(PipelineError, match="which the transform itself uses"):
        replay(spark, transform, to=dead)


def test_records_without_origin_headers_are_compared_by_key(spark: SparkSession) -> None:
    columns = (
        "key binary, value binary, partition int, offset long, headers array<struct<key:string,value:binary>>"
    )
    old = [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (None, b"x"), (None, b"y")]
    new = [(b"a", b"1"), (b"a", b"3"), (b"c", b"1"), (None, b"y"), (None, b"y")]
    frames = [
        spark.createDataFrame([(*pair, 0, at, None) for at, pair in enumerate(side)], columns)
        for side in (old, new)
    ]
    found = compare(*frames, ("old", "new"), {})
    assert (found.equal, found.changed, found.added, found.removed) == (2, 1, 2, 2)
    assert Difference("changed", None, b"a", b"2", b"3") in found.examples


def test_records_of_raw_records_outside_the_ranges_are_left_out(spark: SparkSession) -> None:
    columns = (
        "key binary, value binary, partition int, offset long, headers array<struct<key:string,value:binary>>"
    )

    def rows(*offsets: int) -> DataFrame:
        places = [{"topic": b"raw", "partition": b"0", "offset": b"%d" % offset} for offset in offsets]
        headers = [[(f"origin.{name}", value) for name, value in place.items()] for place in places]
        return spark.createDataFrame([(b"k", b"v", 0, at, each) for at, each in enumerate(headers)], columns)

    found = compare(rows(1, 2, 3, 9), rows(2, 3, 4, 5), ("old", "new"), {"raw": {0: (2, 5)}})
    assert (found.equal, found.changed, found.added, found.removed) == (2, 0, 1, 0)
