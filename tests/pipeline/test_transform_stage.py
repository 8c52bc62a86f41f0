"""Transforms on a real broker: from raw topics into transformed ones and dead letters, each record once."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import wait_until
from tests.pipeline.connector_topics import Sent, Topics, values
from tests.pipeline.transforming import read_topic, run_once, transform_in

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.query_errors import summarize
from ottla.pipeline.stage import Context

ORDERS = """
from ottla.pipeline.transform.parts import flatten, keep, parse_json, reject, route, write_json

SCHEMA = "id long, amount double, country string, customer struct<name:string>"

def clean(raw, *, smallest, prefix=""):
    rows = parse_json(raw, SCHEMA, required=["id", "country"])
    rows = reject(rows, "data.amount < 0", "the amount is negative")
    rows = keep(rows, f"data.amount >= {smallest}")
    rows = rows.withColumn("key", rows.data.id.cast("string"))
    rows = route(rows, f"case when data.country = 'NO' then '{prefix}norway' end")
    return write_json(flatten(rows), "data")
"""


@pytest.fixture
def topics(broker: RunningBroker) -> Topics:
    return Topics(broker.bootstrap)


def order(number: int, amount: float = 5.0, country: str = "SE", **more: object) -> bytes:
    fields = {"id": number, "amount": amount, "country": country, "customer": {"name": "Åsa"}, **more}
    return json.dumps(fields, ensure_ascii=False).encode()


def test_good_orders_are_transformed_and_routed_and_invalid_ones_become_dead_letters(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, to, dead, norway = (f"{topic_name}-{name}" for name in ("raw", "orders", "dead", "norway"))
    for topic in (raw, to, dead, norway):
        topics.create(topic, 2)
    (context.folder / "transforms.py").write_text(ORDERS)
    transform = transform_in(
        context,
        source=raw,
        to=to,
        dead_letters=dead,
        function="transforms.py:clean",
        options={"smallest": 1, "prefix": f"{topic_name}-"},
    )
    assert list(transform.check()) == []
    headers = (("trace", b"\x00\xff"), ("empty", None))
    broken = Sent(b'{"id": \xff', b"\x00key", headers, partition=1)
    topics.produce(raw, [Sent(order(1)), Sent(order(2, country="NO")), Sent(order(3, 0.5)), broken])
    assert run_once(spark, transform)["observedMetrics"] is not None
    # Half way the schema changes: a field more, and one that is no longer there.
    later = b'{"id": 5, "amount": 1}'
    topics.produce(
        raw, [Sent(order(4, colour="red")), Sent(later), Sent(order(6, -1.0)), Sent(None, b"gone")]
    )
    run_once(spark, transform)

    made = {record.key: record for record in read_topic(context.cluster.bootstrap, to)}
    assert set(made) == {b"1", b"4"}
    assert json.loads(made[b"4"].value or b"") == {
        "id": 4,
        "amount": 5.0,
        "country": "SE",
        "customer_name": "Åsa",
    }
    assert made[b"1"].origin == (raw, 0, 0)
    assert [record.key for record in read_topic(context.cluster.bootstrap, norway)] == [b"2"]
    letters = {record.origin[1:]: record for record in read_topic(context.cluster.bootstrap, dead)}
    assert {place: letter.headers["error.reason"].decode() for place, letter in letters.items()} == {
        (1, 0): "not UTF-8",
        (0, 4): "the required field `country` is missing",
        (0, 5): "the amount is negative",
    }
    first = letters[1, 0]
    assert (first.key, first.value) == (broken.key, broken.value)
    assert first.headers["error.stage"] == b"clean"
    assert {name: first.headers[name] for name, _ in headers} == dict(headers)
    assert letters[0, 4].value == later


CLEAN_SQL = """
-- amounts in another currency; what has none is refused
select
  key,
  to_json(struct(id, amount * :rate as amount)) as value,
  case when id is null then concat('no id in ', cast(_origin.value as string)) end as _error,
  _origin
from (
  select *, try_cast(split_part(cast(value as string), ',', 1) as int) as id,
    cast(split_part(cast(value as string), ',', 2) as double) as amount
  from raw
);
"""


def test_a_query_in_a_file_transforms_and_a_batch_that_fails_names_its_offsets(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, to, dead = (f"{topic_name}-{name}" for name in ("raw", "to", "dead"))
    for topic in (raw, to, dead):
        topics.create(topic, 2)
    (context.folder / "clean.sql").write_text(CLEAN_SQL)
    transform = transform_in(
        context, source=[raw], to=to, dead_letters=dead, sql="clean.sql", options={"rate": 2.0}
    )
    topics.produce(raw, [Sent(b"1,2.5", b"a"), Sent(b"x,1", b"b")])
    run_once(spark, transform)
    [record] = read_topic(context.cluster.bootstrap, to)
    assert (record.key, record.value) == (b"a", b'{"id":1,"amount":5.0}')
    [letter] = read_topic(context.cluster.bootstrap, dead)
    assert (letter.value, letter.headers["error.reason"]) == (b"x,1", b"no id in x,1")

    # The other partition of the batch is committed before it dies; corrected logic writes the rest of it.
    topics.produce(raw, [Sent(b"2,1", b"c", partition=1), Sent(b"3,no number")])
    with pytest.raises(StreamingQueryException) as raised:
        run_once(spark, transform)
    sentence = summarize(raised.value).sentence
    assert sentence.startswith("The value 'no number' of the type")
    assert f"the batch with the offsets {raw}-0: 2 to 2, {raw}-1: 0 to 0," in sentence
    (context.folder / "clean.sql").write_text(CLEAN_SQL.replace("    cast(", "    try_cast("))
    run_once(spark, transform)
    values = [record.value or b"" for record in read_topic(context.cluster.bootstrap, to)]
    assert sorted(values) == [b'{"id":1,"amount":5.0}', b'{"id":2,"amount":2.0}', b'{"id":3}']


CHANGES = """
from pyspark.sql import functions as F
from ottla.pipeline.transform.parts import keep, parse_debezium, write_json

def table(raw):
    rows = keep(parse_debezium(raw, "id int, name string"), "change is not null")
    return write_json(rows, "change.after")
"""


def test_change_events_become_the_rows_of_their_table(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, to = f"{topic_name}-raw", f"{topic_name}-table"
    topics.create(raw)
    topics.create(to)
    (context.folder / "changes.py").write_text(CHANGES)
    one, two = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    events = [("r", None, one), ("u", one, two), ("c", None, {"id": 2, "name": "c"}), ("d", two, None)]
    sent = [
        Sent(json.dumps({"op": op, "before": before, "after": after, "ts_ms": 1}).encode(), b"%d" % number)
        for number, (op, before, after) in zip((1, 1, 2, 1), events, strict=True)
    ]
    topics.produce(raw, [*sent, Sent(None, b"1")])
    run_once(spark, transform_in(context, source=raw, to=to, function="changes.py:table"))
    records = read_topic(context.cluster.bootstrap, to)
    assert [record.key for record in records] == [b"1", b"1", b"2", b"1"]
    assert {record.key: record.value for record in records} == {b"1": None, b"2": b'{"id":2,"name":"c"}'}


ONCE = """
from ottla.pipeline.transform.parts import deduplicate, parse_json

def once(raw):
    return deduplicate(parse_json(raw, "id long"), "data.id", within="1 hour")
"""
MINUTE_MS = 60_000


def test_duplicates_are_found_across_restarts_and_only_within_the_span(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, to, dead = (f"{topic_name}-{name}" for name in ("raw", "once", "dead"))
    for topic in (raw, to, dead):
        topics.create(topic, 2)
    (context.folder / "once.py").write_text(ONCE)
    transform = transform_in(context, source=raw, to=to, dead_letters=dead, function="once.py:once")
    start_ms = 1_772_366_400_000

    def sent(number: object, minute: int, partition: int = 0) -> Sent:
        return Sent(b'{"id": %s}' % str(number).encode(), None, (), start_ms + minute * MINUTE_MS, partition)

    topics.produce(raw, [sent(1, 0), sent(1, 1, 1), sent(2, 2), sent("x", 3), sent("x", 3), sent("null", 4)])
    run_once(spark, transform)
    topics.produce(raw, [sent(1, 30), sent("null", 31), sent(3, 200)])
    run_once(spark, transform)
    topics.produce(raw, [sent(3, 210), sent(1, 220), sent(2, 221)])
    run_once(spark, transform)
    made = Counter(record.value for record in read_topic(context.cluster.bootstrap, to))
    assert made == {b'{"id": 1}': 2, b'{"id": 2}': 2, b'{"id": null}': 2, b'{"id": 3}': 1}
    assert len(read_topic(context.cluster.bootstrap, dead)) == 2


HELD = """
import time
from pathlib import Path
from ottla.pipeline.transform.parts import guard

def clean(raw):
    folder = Path(__file__).parent

    def twice(value):
        if value == b"1500" and (folder / "hold").exists():
            (folder / "held").touch()
            time.sleep(600)
        return b"%d" % (2 * int(value))

    rows = guard(raw, twice, "binary")
    return rows.withColumn("value", rows.data)
"""


@pytest.mark.timeout(600)
def test_a_driver_killed_with_half_a_batch_committed_leaves_every_input_once(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, to, dead = (f"{topic_name}-{name}" for name in ("raw", "to", "dead"))
    for topic in (raw, to, dead):
        topics.create(topic, 2)
    (context.folder / "transforms.py").write_text(HELD)
    count = 4000
    # Each batch takes a thousand records of each partition; the one that holds is in the second batch.
    topics.produce(
        raw,
        [Sent(b"bad" if n % 100 == 3 else b"%d" % n, partition=n >= count // 2) for n in range(count)],
    )
    (context.folder / "hold").touch()
    arguments = [topics.bootstrap, context.pipeline, str(context.folder), raw, to, dead]
    log = context.folder / "driver.log"
    with log.open("wb") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.pipeline.transforming", *arguments],
            start_new_session=True,
            stdout=output,
            stderr=output,
        )

    def is_held() -> bool:
        assert driver.poll() is None, log.read_text(errors="replace")[-5000:]
        return (context.folder / "held").exists()

    try:
        wait_until(is_held, "the second batch has begun", 300)
        # Partition 1 of the second batch is committed while partition 0 hangs.
        wait_until(lambda: len(read_topic(topics.bootstrap, to)) >= 2970, "its other half is committed", 120)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert len(read_topic(topics.bootstrap, to)) == 2970
    (context.folder / "hold").unlink()

    table = {"source": raw, "to": to, "dead_letters": dead, "function": "transforms.py:clean"}
    run_once(spark, transform_in(context, max_records_per_batch=2000, **table))
    good, bad = read_topic(topics.bootstrap, to), read_topic(topics.bootstrap, dead)
    assert sorted(record.origin for record in [*good, *bad]) == [
        (raw, partition, offset) for partition in (0, 1) for offset in range(count // 2)
    ]
    assert sorted(int(record.value or b"") for record in good) == [
        2 * n for n in range(count) if n % 100 != 3
    ]
    assert {record.value for record in bad} == {b"bad"}
    assert all(record.headers["error.reason"].startswith(b"ValueError: invalid") for record in bad)


def test_records_deleted_before_they_were_read_stop_a_transform_unless_it_allows_loss(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw, to = f"{topic_name}-raw", f"{topic_name}-to"
    for topic in (raw, to):
        topics.create(topic)
    (context.folder / "copy.sql").write_text("select key, value, _origin from raw")
    table = {"source": raw, "to": to, "sql": "copy.sql"}
    topics.produce(raw, values(4))
    run_once(spark, transform_in(context, **table))
    topics.produce(raw, values(6, start=4))
    topics.delete_before(raw, 7)
    with pytest.raises(StreamingQueryException) as failed:
        run_once(spark, transform_in(context, **table))
    sentence = summarize(failed.value).sentence
    assert "4 to 6 were deleted before they were read" in sentence
    assert "fail_on_data_loss = false" in sentence
    run_once(spark, transform_in(context, **table, fail_on_data_loss=False))
    made = [record.value for record in read_topic(context.cluster.bootstrap, to)]
    assert made == [b"0", b"1", b"2", b"3", b"7", b"8", b"9"]


def test_validation_reports_what_would_stop_a_transform(
    context: Context, topics: Topics, topic_name: str
) -> None:
    raw = f"{topic_name}-raw"
    topics.create(raw)
    (context.folder / "broken.py").write_text("def clean(raw):\n    return raw +\n")
    transform = transform_in(
        context, source=raw, to="missing-orders", dead_letters="dead", function="broken.py:clean"
    )
    made = Context(context.pipeline, context.cluster, context.folder, "checkpoints", frozenset({"dead"}))
    transform.context = made
    first, second = transform.check()
    assert first.where == "[transforms.clean]"
    assert first.what.endswith("broken.py, line 2: invalid syntax.")
    assert second.what == "The topic missing-orders does not exist."


def test_wrong_logic_is_an_error_before_the_query_starts(
    spark: SparkSession, context: Context, topics: Topics, topic_name: str
) -> None:
    raw = f"{topic_name}-raw"
    topics.create(raw)
    folder: Path = context.folder
    (folder / "wrong.py").write_text(
        "from pyspark.sql import functions as F\n"
        "def columns(raw): return raw.select('key')\n"
        "def unknown(raw): return raw.select('valeu')\n"
        "def static(raw): return raw.sparkSession.range(3).selectExpr('cast(id as string) as value')\n"
        "def nothing(raw): pass\n"
        "def random(raw): return raw.withColumn('value', F.rand().cast('string'))\n"
    )
    for name, said in {
        "columns": "returned rows without a column `value`",
        "unknown": "Spark rejects the function `unknown` in wrong.py",
        "static": "do not come from the stream",
        "nothing": "returned NoneType",
        "random": "may give another value when a batch runs again",
    }.items():
        transform = transform_in(context, source=raw, to="to", function=f"wrong.py:{name}")
        with pytest.raises(PipelineError, match=said):
            transform.start(spark, {"availableNow": True})
