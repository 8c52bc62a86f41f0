"""Transactions with confluent-kafka: helpers to write them, and to read with both isolation levels."""

import contextlib
import time
from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.interop.group_clients import GROUP_BROKER
from tests.interop.kio_client import KioClient, errors_in
from tests.interop.librdkafka import TIMEOUT_S, consumer_at, flush, wait_until

LIST_OFFSETS = 2
DESCRIBE_TRANSACTIONS = 65
LATEST = -1

# Kafka checks for transactions that are open for too long at an interval; Ottla has a timer for each.
TRANSACTION_BROKER = GROUP_BROKER | {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.num.partitions": "4",
}


class Transactional:
    """A producer that is initialized; the previous producer with this id is fenced."""

    def __init__(self, bootstrap: str, transactional_id: str, **config: object) -> None:
        self.bootstrap, self.transactional_id = bootstrap, transactional_id
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                **settings,
            }
        )
        self.producer.init_transactions(TIMEOUT_S)

    def begin(self) -> None:
        self.producer.begin_transaction()

    def send(self, topic: str, values: Iterable[str], partition: int = 0) -> None:
        """Returns when the records are in the partition, not yet committed."""
        for value in values:
            self.producer.produce(topic, value, partition=partition)
        flush(self.producer)

    def send_offset(self, topic: str, offset: int, metadata: object) -> None:
        """Of partition 0; `metadata` is that of the consumer."""
        offsets = [TopicPartition(topic, 0, offset)]
        self.producer.send_offsets_to_transaction(offsets, metadata, TIMEOUT_S)

    def commit(self) -> None:
        """Returns when every partition has the marker: the broker responds before, when the outcome is decided."""
        self.producer.commit_transaction(TIMEOUT_S)
        wait_until_complete(self.bootstrap, self.transactional_id)

    def abort(self) -> None:
        self.producer.abort_transaction(TIMEOUT_S)
        wait_until_complete(self.bootstrap, self.transactional_id)

    def transaction(self, topic: str, values: Iterable[str], partition: int = 0) -> None:
        """Writes and commits one transaction."""
        self.begin()
        self.send(topic, values, partition)
        self.commit()


def describe_transaction(bootstrap: str, transactional_id: str) -> Any:
    with contextlib.closing(KioClient(bootstrap)) as client:
        answer = client.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=(transactional_id,))
    (found,) = answer.transaction_states
    return found


def wait_until_complete(bootstrap: str, transactional_id: str) -> None:
    """Waits until the state is Complete, or Empty if there was no transaction."""
    done = ("CompleteCommit", "CompleteAbort", "Empty")
    wait_until(
        lambda: describe_transaction(bootstrap, transactional_id).transaction_state in done,
        f"the transaction of {transactional_id} is complete",
    )


def committed_values(bootstrap: str, topic: str, partition: int = 0) -> list[str]:
    """The values of a partition that a read_committed consumer gets now."""
    return values_to_end(bootstrap, topic, partition, "read_committed")


def all_values(bootstrap: str, topic: str, partition: int = 0) -> list[str]:
    return values_to_end(bootstrap, topic, partition, "read_uncommitted")


def values_to_end(bootstrap: str, topic: str, partition: int, isolation: str) -> list[str]:
    """From the beginning to the end that the broker reports."""
    position = TopicPartition(topic, partition, 0)
    options = {"isolation_level": isolation, "enable_partition_eof": True, "fetch_wait_max_ms": 10}
    with consumer_at(bootstrap, [position], **options) as consumer:
        return read_to_end(consumer)


def read_to_end(consumer: Consumer) -> list[str]:
    values: list[str] = []
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=0.05):
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values
            elif error.code() != KafkaError._TRANSPORT:
                raise KafkaException(error)
    raise AssertionError(f"{len(values)} records, and no end within {TIMEOUT_S:.0f} s")


def end_offset(bootstrap: str, topic: str, partition: int = 0, *, stable: bool = False) -> int:
    """The high watermark, or the last stable offset."""
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": LATEST}]}]
    answer: Any = None

    def is_known() -> bool:
        """A broker that has just started may not lead the partition yet."""
        nonlocal answer
        with contextlib.closing(KioClient(bootstrap)) as client:
            answer = client.ask(LIST_OFFSETS, 8, replica_id=-1, isolation_level=int(stable), topics=topics)
        return not errors_in(answer)

    wait_until(is_known, f"the end of {topic}-{partition} is known")
    return int(answer.topics[0].partitions[0].offset)


def last_stable_offset(bootstrap: str, topic: str, partition: int = 0) -> int:
    return end_offset(bootstrap, topic, partition, stable=True)


def error_of(failed: KafkaException) -> KafkaError:
    error = failed.args[0]
    assert isinstance(error, KafkaError)
    return error


def numbers(begin: int, end: int) -> Sequence[str]:
    return [str(number) for number in range(begin, end)]
