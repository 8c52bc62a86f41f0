"""What the sink's tests share: topics read to their ends, Arrow rows, and writers that fail where a test wants it."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.datasource import DataSource

from ottla.pipeline.spark.source import OttlaDataSource

Batches = Iterator[pa.RecordBatch]


def create_topic(bootstrap: str, topic: str, partitions: int = 2, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, config=settings)])[topic].result(30)


def records(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All records, partition by partition, each in the order of its offsets."""
    client = {"bootstrap.servers": bootstrap, "group.id": "written", "log_level": 2}
    reading = {"enable.partition.eof": True, "auto.offset.reset": "earliest", "isolation.level": isolation}
    consumer = Consumer({**client, **reading})
    partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found: list[Message] = []
    unread = set(partitions)
    while unread:
        for message in consumer.consume(5000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
    consumer.close()
    return sorted(found, key=lambda message: (message.partition(), message.offset()))


def numbers(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[int]:
    return [int(message.value() or b"") for message in records(bootstrap, topic, isolation)]


def is_in_order(bootstrap: str, topic: str, spark_partitions: int) -> bool:
    """Whether rows of one Spark partition follow each other in each partition of the topic.

    Spark's rate source deals its numbers out in turn: the remainder tells the Spark partition.
    """
    last: dict[tuple[int, int], int] = {}
    for message in records(bootstrap, topic):
        number = int(message.value() or b"")
        place = (message.partition(), number % spark_partitions)
        if last.get(place, -1) >= number:
            return False
        last[place] = number
    return True


def rows(values: range, batch_rows: int = 1000) -> Batches:
    for start in range(values.start, values.stop, batch_rows):
        part = [str(number).encode() for number in range(start, min(start + batch_rows, values.stop))]
        yield pa.RecordBatch.from_arrays([pa.array(part, pa.binary())], names=["value"])


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("what was waited for did not come")
        time.sleep(0.02)


def faulty_source(
    name: str, folder: Path, before: Callable[..., None] | None, after: Callable[..., None] | None
) -> type[DataSource]:
    """`format("ottla")` under another name, whose tasks call `before` after some rows and `after` behind the commit.

    Both are called with the Spark partition and the folder, in Spark's Python process. The class is local, so it
    reaches that process by value.
    """
    path = str(folder)

    class Faulty(OttlaDataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            from pyspark import TaskContext

            writer = super().streamWriter(schema, overwrite)
            write = writer.write

            def faulty_write(batches: Any) -> Any:
                partition = TaskContext.get().partitionId()

                def faulty_batches() -> Any:
                    for count, batch in enumerate(batches):
                        if count == 2 and before is not None:
                            before(partition, path)
                        yield batch

                message = write(faulty_batches())
                if after is not None:
                    after(partition, path)
                return message

            writer.write = faulty_write
            return writer

    return Faulty


def first_time(folder: str, what: str) -> bool:
    try:
        os.close(os.open(f"{folder}/{what}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
