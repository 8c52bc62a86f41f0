"""Clients that run while nodes die: they know what was acknowledged, and check that exactly this is in the cluster."""

import contextlib
import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.clusters import Cluster
from tests.interop.librdkafka import TIMEOUT_S, flush, read_records, wait_until

# The client survives the failures of a test: it retries soon and does not give up within the test.
# A paused node keeps its connections open: without a short timeout the client waits for it for a minute.
PATIENCE = {
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.max.ms": 300,
    "socket.timeout.ms": 3_000,
    "log_level": 0,
}
# A new attempt may not meet these errors. The client drops its connection to a broker, and the requests on it, when a
# broker that was cut off sends metadata without that broker (_DESTROY_BROKER).
PASSING = (
    KafkaError._DESTROY_BROKER,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_CONTROLLER,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
)
BURST = 20
BURST_PAUSE_S = 0.01


def admin_of(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, **PATIENCE})


def create_topic(
    cluster: Cluster, name: str, partitions: int = 3, replicas: int = 3, **config: object
) -> str:
    """Returns when all replicas are in sync. Configs have underscores for dots."""
    configs = {key.replace("_", "."): str(value) for key, value in config.items()}
    _create(cluster, NewTopic(name, num_partitions=partitions, replication_factor=replicas, config=configs))
    cluster.wait_until_in_sync(name)
    return name


def create_on(cluster: Cluster, name: str, assignment: list[list[int]], **config: object) -> str:
    """With these replicas of each partition, of which the first leads."""
    configs = {key.replace("_", "."): str(value) for key, value in config.items()}
    _create(
        cluster, NewTopic(name, num_partitions=len(assignment), replica_assignment=assignment, config=configs)
    )
    cluster.wait_until_in_sync(name)
    return name


def _create(cluster: Cluster, topic: NewTopic) -> None:
    """Tries again if the controller was just changing. The topic may exist then: only the response was lost."""
    passed: list[KafkaError] = []

    def is_created() -> bool:
        admin = admin_of(cluster)  # it ends its requests with itself
        try:
            admin.create_topics([topic], request_timeout=10)[topic.topic].result(TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            if passed and code == KafkaError.TOPIC_ALREADY_EXISTS:
                return True
            if code not in PASSING:
                raise
            passed.append(error.args[0])
            return False
        return True

    cluster.wait_until(is_created, f"topic {topic.topic} is created", 2 * TIMEOUT_S)


class ProduceLoad:
    """An idempotent producer with acks=all in a thread. It numbers the records of each partition."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int = 3, **config: object) -> None:
        self._cluster, self._topic, self._partitions = cluster, topic, partitions
        settings = {name.replace("_", "."): value for name, value in config.items()}
        patience = {**PATIENCE, "message.timeout.ms": 120_000, "linger.ms": 2, "enable.idempotence": True}
        self._producer = Producer({"bootstrap.servers": cluster.bootstrap, **patience, **settings})
        self._stop, self._pause = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.sent: dict[int, int] = defaultdict(int)
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self._times: dict[int, list[float]] = defaultdict(list)
        self.errors: list[KafkaError] = []

    def __enter__(self) -> "ProduceLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, records: int = 300) -> None:
        """Until each partition has that many more acknowledged records."""
        wanted = {p: len(self.acknowledged[p]) + records for p in range(self._partitions)}
        self._cluster.wait_until(
            lambda: bool(self.errors) or all(len(self.acknowledged[p]) >= n for p, n in wanted.items()),
            f"{records} more records of each partition of {self._topic} are acknowledged",
        )
        assert not self.errors, self.errors[0]

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Sends nothing meanwhile. Everything sent before is acknowledged."""
        self._pause.set()
        self._cluster.wait_until(
            lambda: all(len(self.acknowledged[p]) == self.sent[p] for p in range(self._partitions)),
            f"all records of {self._topic} are acknowledged",
        )
        yield
        self._pause.clear()

    def finish(self) -> None:
        """Stops sending, and waits for the acknowledgement of everything sent."""
        self._stop.set()
        self._thread.join()
        flush(self._producer)
        assert not self.errors, self.errors[0]

    def longest_gap_s(self) -> float:
        """The longest time in which a partition had no acknowledged record."""
        pairs = (pair for times in self._times.values() for pair in itertools.pairwise(times))
        return max((after - before for before, after in pairs), default=0.0)

    def check(self) -> None:
        """Every acknowledged record is in the cluster: in order, once, and nothing else is."""
        for partition in range(self._partitions):
            acknowledged = self.acknowledged[partition]
            assert acknowledged == list(range(self.sent[partition]))
            records = read_records(
                self._cluster.bootstrap, self._topic, len(acknowledged), (partition,), check_crcs=True
            )
            assert [_number(record) for record in records] == acknowledged
            end = end_offset(self._cluster, self._topic, partition)
            assert end == len(acknowledged), (
                f"{self._topic}-{partition} ends at {end} after {len(acknowledged)}"
            )

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._pause.is_set():
                for partition in range(self._partitions):
                    for _ in range(BURST):
                        self._send(partition)
            self._producer.poll(0)
            time.sleep(BURST_PAUSE_S)  # about two thousand records a second to each partition

    def _send(self, partition: int) -> None:
        value = f"{self.sent[partition]} {'x' * 100}".encode()
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
        except BufferError:
            self._producer.poll(0.05)
        else:
            self.sent[partition] += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition = message.partition()
        assert partition is not None
        self.acknowledged[partition].append(_number(message))
        self._times[partition].append(time.monotonic())


def _number(message: Message) -> int:
    return int((message.value() or b"").split()[0])


def end_offset(cluster: Cluster, topic: str, partition: int, **config: object) -> int:
    """The high watermark, or the last stable offset with `isolation_level="read_committed"`."""
    settings = {name.replace("_", "."): value for name, value in config.items()}

    def find() -> int | None:
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": "ends", **PATIENCE, **settings}
        )
        try:
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() not in PASSING:
                raise
            return None
        finally:
            consumer.close()
        return int(end)

    return cluster.wait_for(find, f"the end of {topic}-{partition} is known")


class TopicCreations:
    """Creates topics one after the other in a thread, and repeats a creation that got no response."""

    def __init__(self, cluster: Cluster, prefix: str, replicas: int = 3) -> None:
        self._cluster, self._prefix, self._replicas = cluster, prefix, replicas
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.created: list[str] = []
        self._admin = admin_of(cluster)
        self.longest_s = 0.0

    def __enter__(self) -> "TopicCreations":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, topics: int = 5) -> None:
        wanted = len(self.created) + topics
        self._cluster.wait_until(lambda: len(self.created) >= wanted, f"{topics} more topics are created")

    def _run(self) -> None:
        while not self._stop.is_set():
            name = f"{self._prefix}-{len(self.created)}"
            began = time.monotonic()
            while not self._create(name):
                if self._stop.is_set():
                    return
            self.created.append(name)
            self.longest_s = max(self.longest_s, time.monotonic() - began)

    def _create(self, name: str) -> bool:
        """A creation whose response was lost exists already when it is repeated."""
        topic = NewTopic(name, num_partitions=2, replication_factor=self._replicas)
        try:
            self._admin.create_topics([topic], request_timeout=5)[name].result(TIMEOUT_S)
        except KafkaException as error:
            # This client would send its next request to the node that did not respond.
            self._admin = admin_of(self._cluster)
            return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
        return True


class GroupMember:
    """A consumer of a group in a thread; it commits by itself, often."""

    def __init__(self, cluster: Cluster, group: str, topic: str, **config: object) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            **PATIENCE,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
        self._cluster = cluster
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.read: dict[int, list[int]] = defaultdict(list)

    def __enter__(self) -> "GroupMember":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def count(self) -> int:
        return sum(len(numbers) for numbers in self.read.values())

    def wait_for_more(self, records: int = 300) -> None:
        wanted = self.count() + records
        self._cluster.wait_until(
            lambda: self.count() >= wanted, f"a group member reads {records} more records"
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                partition = message.partition()
                if message.error() is None and partition is not None:
                    self.read[partition].append(_number(message))


class TransactionLoad:
    """Transactions over all partitions in a thread; every third one is aborted."""

    def __init__(self, cluster: Cluster, topic: str, transactional_id: str, partitions: int) -> None:
        self._cluster, self._topic, self._partitions = cluster, topic, partitions
        self._config = {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 120_000,  # no test takes that long, so only a fault ends a transaction
            "linger.ms": 0,
            **PATIENCE,
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.committed: list[str] = []
        self._committed_at = time.monotonic()
        self.aborted: list[str] = []
        self.failures: list[BaseException] = []

    def __enter__(self) -> "TransactionLoad":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_more(self, transactions: int = 10) -> None:
        wanted = len(self.committed) + transactions
        self._cluster.wait_until(
            lambda: bool(self.failures) or len(self.committed) >= wanted,
            f"{transactions} more transactions are committed",
        )
        if self.failures:
            raise self.failures[0]

    def seconds_since_commit(self) -> float:
        return time.monotonic() - self._committed_at

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.failures:
            raise self.failures[0]

    def check(self) -> None:
        """A consumer of committed records sees each committed transaction once, in order, and nothing else."""
        expected = [name.encode() for name in self.committed]
        for partition in range(self._partitions):
            records = read_records(
                self._cluster.bootstrap,
                self._topic,
                len(expected),
                (partition,),
                isolation_level="read_committed",
            )
            assert [record.value() for record in records] == expected
            wait_until(lambda p=partition: not self._has_open_transaction(p), "no transaction is open")  # type: ignore[misc]

    def _has_open_transaction(self, partition: int) -> bool:
        """Whether the last stable offset is not the end: then `check` would not see the last transactions."""
        stable = end_offset(self._cluster, self._topic, partition, isolation_level="read_committed")
        return stable < end_offset(self._cluster, self._topic, partition)

    def _run(self) -> None:
        try:
            producer = Producer(self._config)
            producer.init_transactions(TIMEOUT_S)
            for name, shall_commit in self._plan():
                self._transaction(producer, name, shall_commit)
        except BaseException as error:
            self.failures.append(error)

    def _plan(self) -> Iterator[tuple[str, bool]]:
        number = 0
        while not self._stop.is_set():
            yield f"txn-{number}", number % 3 != 2
            number += 1

    def _transaction(self, producer: Producer, name: str, shall_commit: bool) -> None:
        producer.begin_transaction()
        try:
            for partition in range(self._partitions):
                producer.produce(self._topic, name.encode(), partition=partition)
            if shall_commit:
                retried(producer.commit_transaction)
                self.committed.append(name)
                self._committed_at = time.monotonic()
                return
            flush(producer)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        retried(producer.abort_transaction)
        self.aborted.append(name)


def retried(call: Any) -> None:
    """Repeats a call of a transactional producer while its error says that it may be repeated."""
    deadline = time.monotonic() + 2 * TIMEOUT_S
    while True:
        try:
            call(TIMEOUT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
