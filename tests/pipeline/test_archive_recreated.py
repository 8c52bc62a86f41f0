"""A topic that is deleted and created again: all its records are archived, before and after, and apart."""

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import wait_until
from tests.pipeline.archiving import (
    END_OF_RECORDS_MS,
    error_with,
    make_topic,
    produce,
    run_all,
    sink,
    some_records,
)

from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.coverage import CREATED_AGAIN
from ottla.pipeline.archive.manifest import DataFile
from ottla.pipeline.archive.merge import merge
from ottla.pipeline.archive.staging import OrderedFiles
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.archive.table import archive_table
from ottla.pipeline.archive.verification import verify
from ottla.pipeline.stage import Context


def create_again(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)

    def is_created() -> bool:
        """A broker may know the old topic for a moment."""
        try:
            make_topic(bootstrap, topic)
        except KafkaException:
            return False
        return True

    wait_until(is_created, f"{topic} is created again")


def test_a_topic_that_is_created_again_gets_a_history_of_its_own(
    spark: SparkSession, broker: RunningBroker, context: Context, tmp_path: Path, topic_name: str
) -> None:
    make_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(40))
    stage = sink(context, topic_name, format="delta")
    run_all(spark, stage)
    create_again(broker.bootstrap, topic_name)
    # longer than the old one: the archived end is an offset of the new topic as well
    produce(broker.bootstrap, topic_name, some_records(100))
    with error_with(f"The topic {topic_name} was deleted and created again"):
        run_all(spark, stage)
    report = verify(spark, context.cluster, stage.path)
    assert {(finding.what, finding.span) for finding in report.findings} == {(CREATED_AGAIN, (0, 50))}

    (tmp_path / "checkpoints").rename(tmp_path / "lost")
    run_all(spark, stage)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    archived = Archive.at(stage.path).load()
    first, second = archived.histories
    assert (first, archived.topics) == (topic_name, [topic_name])
    assert archived.ends == {
        TopicPartition(history, partition): end
        for history, end in ((first, 20), (second, 50))
        for partition in range(2)
    }

    create_again(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(20))
    run_all(spark, sink(context, topic_name, format="delta", fail_on_data_loss=False))
    merge(spark, stage.path, lambda: END_OF_RECORDS_MS)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole
    counted = archive_table(spark, stage.path, topic_name).groupBy("topicId", "topic").count().collect()
    assert sorted((row["count"], row["topic"]) for row in counted) == [
        (20, topic_name),
        (40, topic_name),
        (100, topic_name),
    ]


@pytest.mark.parametrize("fail_on_data_loss", [True, False], ids=["strict", "lenient"])
def test_a_topic_that_is_created_again_before_a_planned_batch_is_read_is_kept_apart(
    spark: SparkSession,
    broker: RunningBroker,
    context: Context,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
    fail_on_data_loss: bool,
) -> None:
    make_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, some_records(40))
    stage = sink(context, topic_name, fail_on_data_loss=fail_on_data_loss)
    run_all(spark, stage)
    produce(broker.bootstrap, topic_name, some_records(20))
    planned: list[str] = []
    write_files = OrderedFiles.write

    def created_again(
        self: OrderedFiles, archive: Archive, rows: DataFrame, name: str, tasks: int
    ) -> tuple[DataFile, ...]:
        if not planned:
            planned.append(name)
            create_again(broker.bootstrap, topic_name)
            produce(broker.bootstrap, topic_name, some_records(100))
        return write_files(self, archive, rows, name, tasks)

    monkeypatch.setattr(OrderedFiles, "write", created_again)
    if fail_on_data_loss:
        with error_with(f"The topic {topic_name} was deleted and created again"):
            run_all(spark, stage)
        assert Archive.at(stage.path).load().ends == dict.fromkeys(partitions_of(topic_name), 20)
        return
    run_all(spark, stage)
    archived = Archive.at(stage.path).load()
    first, second = archived.histories
    assert archived.ends == dict.fromkeys(partitions_of(first), 20) | dict.fromkeys(partitions_of(second), 50)
    assert verify(spark, context.cluster, stage.path, deep=True).is_whole


def partitions_of(history: str) -> list[TopicPartition]:
    return [TopicPartition(history, partition) for partition in range(2)]
