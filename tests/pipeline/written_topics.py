"""What the sink's tests share: topics read to their ends, and Arrow rows."""

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

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
    if isolation == "read_committed":
        wait_until_stable(bootstrap, topic, partitions)
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


def wait_until_stable(bootstrap: str, topic: str, partitions: Iterable[int], seconds: float = 60.0) -> None:
    """Waits until all records before the present end are visible, or skipped because they are aborted.

    The response to a commit or abort comes before it is visible in the partitions. An abandoned transaction stays open
    until its timeout.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def ends(isolation: IsolationLevel) -> list[int]:
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        answers = admin.list_offsets(asked, isolation_level=isolation, request_timeout=30)
        return [answer.result().offset for answer in answers.values()]

    present = ends(IsolationLevel.READ_UNCOMMITTED)
    deadline = time.monotonic() + seconds

    def is_stable() -> bool:
        stable = ends(IsolationLevel.READ_COMMITTED)
        return all(offset >= end for offset, end in zip(stable, present, strict=True))

    while not is_stable():
        assert time.monotonic() < deadline, f"a transaction is still open in {topic} after {seconds} s"
        time.sleep(0.02)


def numbers(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[int]:
    return [int(message.value() or b"") for message in records(bootstrap, topic, isolation)]


def is_in_order(bootstrap: str, topic: str, spark_partitions: int) -> bool:
    """Whether rows of one Spark partition follow each other in each partition of the topic.

    Spark's rate source deals its numbers out in turn: the remainder tells the Spark partition.
    """
    last: dict[tuple[int | None, int], int] = {}
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


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("what was waited for did not come")
        time.sleep(0.02)
