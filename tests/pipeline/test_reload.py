"""An archive back into topics: everything as it was, a part of it, and never twice."""

from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.interop.brokers import RunningBroker
from tests.pipeline.archiving import (
    END_OF_RECORDS_MS,
    error_with,
    make_topic,
    produce,
    records_of,
    reload_of,
    run_all,
    sink,
    some_records,
)

from ottla.pipeline.archive.merge import merge
from ottla.pipeline.stage import Context


def test_an_archive_is_loaded_as_it_was_and_a_second_run_adds_nothing(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    back, part = f"{topic_name}-back", f"{topic_name}-part"
    make_topic(broker.bootstrap, topic_name)
    make_topic(broker.bootstrap, back)
    make_topic(broker.bootstrap, part, 3)
    archive = sink(context, topic_name, max_offsets_per_batch=100)
    # The second half of the records has the times of the first: files of one hour hold offsets far apart.
    produce(broker.bootstrap, topic_name, some_records(100))
    produce(broker.bootstrap, topic_name, some_records(100))
    run_all(spark, archive)

    whole = reload_of(context, "whole", to=back, max_offsets_per_batch=150)
    assert list(whole.check()) == []
    run_all(spark, whole)
    merge(spark, archive.path, lambda: END_OF_RECORDS_MS)
    # What is archived later is not part of a load that was planned before.
    produce(broker.bootstrap, topic_name, some_records(10))
    run_all(spark, archive)
    run_all(spark, whole)
    original = records_of(spark, context.cluster, topic_name)
    expected = sorted(original[:100] + original[105:205], key=lambda record: record[0])
    assert records_of(spark, context.cluster, back) == expected

    by_key: dict[str, Any] = {
        "to": part,
        "partitioning": "key",
        "offset_from": 50,
        "time_to": "2026-01-31T23:00:00Z",
    }
    run_all(spark, reload_of(context, "part", **by_key))
    loaded = records_of(spark, context.cluster, part)
    chosen = [record for record in original[50:105] + original[155:] if record[1].hour == 22]
    assert sorted(map(content, loaded)) == sorted(map(content, chosen))
    partitions = {record[2]: set[int]() for record in loaded if record[2]}
    for record in loaded:
        partitions.get(record[2], set()).add(record[0])
    assert all(len(found) == 1 for found in partitions.values())

    with error_with("`to` was", "Set it back"):
        run_all(spark, reload_of(context, "whole", to=part))


def content(record: tuple[object, ...]) -> str:
    """Without the partition."""
    return str(record[1:])


def test_what_cannot_be_loaded_is_reported_before_anything_starts(
    spark: SparkSession, broker: RunningBroker, context: Context, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name, 3)
    make_topic(broker.bootstrap, f"{topic_name}-one", 1)
    produce(broker.bootstrap, topic_name, some_records(9, partitions=3))
    run_all(spark, sink(context, topic_name))
    (finding,) = reload_of(context, "back", to=f"{topic_name}-one").check()
    assert finding.what == f"The topic {topic_name}-one has 1 partitions, the archived one 3."
    (finding,) = reload_of(context, "back", to=f"{topic_name}-none").check()
    assert finding.what == f"The topic {topic_name}-none does not exist."
    (finding,) = reload_of(context, "back", topics=("none",)).check()
    assert finding.what.endswith("has no topic none.")
    (finding,) = reload_of(context, "back", path="nowhere").check()
    assert "is gone" in finding.what


def test_an_archive_of_a_topic_that_was_deleted_is_loaded(
    spark: SparkSession, broker: RunningBroker, context: Context, topic_name: str
) -> None:
    back = f"{topic_name}-back"
    make_topic(broker.bootstrap, topic_name)
    make_topic(broker.bootstrap, back)
    produce(broker.bootstrap, topic_name, some_records(40))
    run_all(spark, sink(context, topic_name))
    original = records_of(spark, context.cluster, topic_name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic_name])[topic_name].result(30)
    again = reload_of(context, "again", to=back)
    assert list(again.check()) == []
    run_all(spark, again)
    assert records_of(spark, context.cluster, back) == original
    (finding,) = reload_of(context, "home").check()
    assert finding.what == f"The topic {topic_name} does not exist."
