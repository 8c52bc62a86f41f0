"""Replays on a real broker: corrected logic from raw beside the old, and what differs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.connector_topics import Sent, Topics
from tests.pipeline.pipeline_command import ottla_asking
from tests.pipeline.transforming import read_topic, retry_retriable_errors, run_once, transform_in

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.replay.command import parse_start, replay
from ottla.pipeline.replay.comparison import Difference, compare
from ottla.pipeline.replay.plan import Wanted
from ottla.pipeline.replay.planning import log_of
from ottla.pipeline.stage import Context
from ottla.pipeline.topics import connect

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

PIPELINE = """
name = "{context.pipeline}"
cluster = {{ bootstrap = "{context.cluster.bootstrap}" }}

[transforms.clean]
from = "{raw}"
to = "{to}"
dead_letters = "{dead}"
function = "logic.py:clean"
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


def test_corrected_logic_is_replayed_and_the_differences_are_counted(
    spark: SparkSession,
    context: Context,
    broker: RunningBroker,
    topic_name: str,
    write_logic: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
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
    # Corrected: order 1 is wanted too, and prices of more than 1 were wrong.
    write_logic(lowest=-1, factor="(1 + (rows.data.price > 1).cast('int'))")
    text = PIPELINE.format(context=context, raw=raw, to=to, dead=dead)
    (context.folder / "pipeline.toml").write_text(text)
    # Order 1 is before this time: it is neither written nor compared.
    beginning = "2026-03-01T12:00:02Z"
    asked = (
        "--transform",
        "clean",
        "--to",
        new,
        "--from",
        beginning,
        "--file",
        str(context.folder),
        "--json",
    )
    said = retry_retriable_errors(lambda: ottla_asking(spark, "pipeline", "replay", *asked))
    orders, letters, routed = map(json.loads, said.splitlines())

    assert (orders["old_topic"], orders["new_topic"]) == (to, new)
    assert [orders[kind] for kind in ("equal", "changed", "added", "removed")] == [1, 1, 0, 0]
    assert orders["examples"] == [
        {
            "kind": "changed",
            "origin": [raw, 0, 2],
            "key": "3",
            "old": '{"id":3,"price":2.0,"country":"SE"}',
            "new": '{"id":3,"price":4.0,"country":"SE"}',
        }
    ]
    assert (letters["new_topic"], letters["equal"], letters["changed"]) == (f"{new}-{dead}", 1, 0)
    assert (routed["new_topic"], routed["equal"], routed["changed"]) == (f"{new}-{norway}", 0, 1)
    assert read_topic(topics.bootstrap, to) == before

    # Once more: it takes only what has come since.
    monkeypatch.setattr(
        "ottla.pipeline.replay.command.compare", lambda old, new, names, ranges: (*names, ranges)
    )
    topics.produce(raw, [order(6, 1)])
    again: Any = retry_retriable_errors(lambda: replay(spark, transform, to=new, from_=beginning))[0]
    assert again == (to, new, {raw: {0: [(1, 6, None)]}})
    assert [record.key for record in read_topic(topics.bootstrap, new)] == [b"2", b"3", b"6"]
    connection = connect(context.cluster)
    log = log_of(connection, raw, None, parse_start("earliest"))
    assert (log.earliest, log.start, log.end) == ({0: 0}, {0: 0}, {0: 6})

    write_logic(lowest=0, factor=1)
    with pytest.raises(PipelineError, match="has records that this replay did not write"):
        replay(spark, transform, to=new)
    with pytest.raises(PipelineError, match="which the transform itself uses"):
        replay(spark, transform, to=dead)


def test_records_without_origin_headers_are_compared_by_key(spark: SparkSession) -> None:
    columns = (
        "key binary, value binary, partition int, offset long, headers array<struct<key:string,value:binary>>"
    )
    old = [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (None, b"x"), (None, b"y")]
    new = [(b"a", b"1"), (b"a", b"3"), (b"c", b"1"), (None, b"y"), (None, b"y")]
    old_rows, new_rows = (
        spark.createDataFrame([(*pair, 0, at, None) for at, pair in enumerate(side)], columns)
        for side in (old, new)
    )
    found = compare(old_rows, new_rows, ("old", "new"), {})
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

    found = compare(rows(1, 2, 3, 9), rows(2, 3, 4, 5), ("old", "new"), {"raw": {0: [Wanted(2, 5)]}})
    assert (found.equal, found.changed, found.added, found.removed) == (2, 0, 1, 0)


def test_records_of_a_topic_that_was_created_again_are_told_apart_by_their_times(spark: SparkSession) -> None:
    columns = (
        "key binary, value binary, partition int, offset long, headers array<struct<key:string,value:binary>>"
    )

    def rows(*made: tuple[int, bytes]) -> DataFrame:
        """Of raw records with the same offset, by their times."""
        origins = [
            [("topic", b"raw"), ("partition", b"0"), ("offset", b"7"), ("timestamp", b"%d" % time)]
            for time, _ in made
        ]
        headers = [[(f"origin.{name}", value) for name, value in origin] for origin in origins]
        return spark.createDataFrame(
            [(b"k", value, 0, at, headers[at]) for at, (_, value) in enumerate(made)], columns
        )

    # The topic in use has lost the outputs of the earlier records.
    old, new = rows((200, b"b")), rows((100, b"a"), (200, b"b"))
    twice = {"raw": {0: [Wanted(0, 9), Wanted(5, 8)]}}
    found = compare(old, new, ("old", "new"), twice)
    assert (found.equal, found.changed, found.added, found.removed) == (1, 0, 1, 0)
    late = {"raw": {0: [Wanted(0, 9, 150), Wanted(5, 8, 150)]}}
    found = compare(new, old, ("old", "new"), late)
    assert (found.equal, found.changed, found.added, found.removed) == (1, 0, 0, 0)
