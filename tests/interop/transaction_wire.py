"""A transaction on one plain socket, and requests that are valid except for the fields that a test changes."""

import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.interop.kio_client import KioClient, errors_in
from tests.interop.librdkafka import wait_until
from tests.interop.wire import batch, record

PRODUCE = 0
LIST_OFFSETS = 2
OFFSET_FETCH = 9
FIND_COORDINATOR = 10
INIT_PRODUCER_ID = 22
ADD_PARTITIONS_TO_TXN = 24
ADD_OFFSETS_TO_TXN = 25
END_TXN = 26
WRITE_TXN_MARKERS = 27
TXN_OFFSET_COMMIT = 28
DESCRIBE_PRODUCERS = 61
DESCRIBE_TRANSACTIONS = 65
LIST_TRANSACTIONS = 66

TRANSACTIONAL = 0x10  # in the attributes of a batch
TIMEOUT_MS = 60_000
NOT_YET = {
    "coordinator_not_available",
    "coordinator_load_in_progress",
    "not_coordinator",
    "concurrent_transactions",
    "unknown_topic_or_partition",
    "not_leader_or_follower",
}

Request = tuple[int, int, dict[str, Any]]


@dataclass(frozen=True)
class Versions:
    """The client's protocol: before KIP-890 it adds partitions first, and all transactions have one epoch."""

    produce: int
    end: int
    offsets: int
    names_partitions: bool


BEFORE_890 = Versions(produce=11, end=4, offsets=4, names_partitions=True)
SINCE_890 = Versions(produce=12, end=5, offsets=5, names_partitions=False)


@dataclass
class Stage:
    """Three transactional ids: one with an ongoing transaction, which has a record in partition 0 of two and offset 5
    of a simple group; one without a transaction; and one that was never initialized."""

    client: KioClient
    topic: str
    versions: Versions
    ongoing: str = field(default_factory=lambda: f"ongoing-{uuid.uuid4().hex[:8]}")
    empty: str = field(default_factory=lambda: f"empty-{uuid.uuid4().hex[:8]}")
    unknown: str = field(default_factory=lambda: f"unknown-{uuid.uuid4().hex[:8]}")
    group: str = field(default_factory=lambda: f"group-{uuid.uuid4().hex[:8]}")
    producer: dict[str, tuple[int, int]] = field(default_factory=dict)

    def ask(self, request: Request) -> Any:
        api_key, version, fields = request
        return self.client.ask(api_key, version, **fields)

    def errors(self, request: Request) -> list[str]:
        return errors_in(self.ask(request))

    def set_up(self) -> None:
        for transactional_id in (self.ongoing, self.empty):
            self.producer[transactional_id] = self.initialize(transactional_id)
        # The epoch must have a predecessor.
        self.producer[self.ongoing] = self.initialize(self.ongoing)
        if self.versions.names_partitions:
            self.accept_in_time(add_partitions(self))
            self.accept_in_time(add_offsets(self))
        self.accept_in_time(produce(self))
        for partition in (0, 1):
            self.accept_in_time(list_offsets(self, partition))
        self.ask((FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": (self.group,)}))
        self.accept_in_time(commit_offset(self))

    def initialize(self, transactional_id: str) -> tuple[int, int]:
        self.ask((FIND_COORDINATOR, 4, {"key_type": 1, "coordinator_keys": (transactional_id,)}))
        answer = self.accept_in_time(initialize(transactional_id))
        return answer.producer_id, answer.producer_epoch

    def accept(self, request: Request) -> Any:
        answer = self.ask(request)
        assert errors_in(answer) == []
        return answer

    def accept_in_time(self, request: Request) -> Any:
        """Retries while topics are new and coordinators load."""
        answer: Any = None

        def is_accepted() -> bool:
            nonlocal answer
            answer = self.ask(request)
            assert set(errors_in(answer)) <= NOT_YET
            return not errors_in(answer)

        wait_until(is_accepted, f"{request} is accepted")
        return answer

    def look(self) -> list[Any]:
        """Everything that is visible of the ids, of both partitions and of the group's offset."""
        ids = (self.ongoing, self.empty, self.unknown)
        partitions = [{"name": self.topic, "partition_indexes": (0, 1)}]
        group = {"group_id": self.group, "topics": [{"name": self.topic, "partition_indexes": (0, 1)}]}
        return [
            self.client.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=ids),
            self.client.ask(DESCRIBE_PRODUCERS, 0, topics=partitions),
            [self.end_offset(partition, stable) for partition in (0, 1) for stable in (False, True)],
            [
                self.client.ask(OFFSET_FETCH, 9, groups=[group], require_stable=stable)
                for stable in (False, True)
            ],
        ]

    def end_offset(self, partition: int = 0, stable: bool = False) -> int:
        return int(self.accept(list_offsets(self, partition, stable)).topics[0].partitions[0].offset)

    def state(self, transactional_id: str) -> str:
        answer = self.client.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=(transactional_id,))
        return str(answer.transaction_states[0].transaction_state)

    def wait_for_state(self, transactional_id: str, state: str) -> None:
        wait_until(lambda: self.state(transactional_id) == state, f"{transactional_id} is {state}")


def initialize(transactional_id: str | None, version: int = 4, **changes: Any) -> Request:
    fields = {"transactional_id": transactional_id, "transaction_timeout": TIMEOUT_MS}
    return INIT_PRODUCER_ID, version, fields | changes


def list_offsets(stage: Stage, partition: int, stable: bool = False) -> Request:
    topics = [{"name": stage.topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
    return LIST_OFFSETS, 8, {"replica_id": -1, "isolation_level": int(stable), "topics": topics}


def identity(stage: Stage, prefix: str = "", **changes: Any) -> dict[str, Any]:
    """`transactional_id`, `producer_id` and `producer_epoch`, unless a test replaces them."""
    transactional_id = changes.get("transactional_id", stage.ongoing)
    producer_id, epoch = stage.producer.get(transactional_id, stage.producer[stage.ongoing])
    who = {
        "transactional_id": transactional_id,
        "producer_id": changes.get("producer_id", producer_id),
        "producer_epoch": changes.get("producer_epoch", epoch + changes.get("epoch_change", 0)),
    }
    return {f"{prefix}{name}": value for name, value in who.items()}


def add_partitions(
    stage: Stage,
    version: int = 3,
    *,
    topic: str | None = None,
    partitions: tuple[int, ...] = (0,),
    **who: Any,
) -> Request:
    prefix = "v3_and_below_"
    topics = [{"name": stage.topic if topic is None else topic, "partitions": partitions}]
    return ADD_PARTITIONS_TO_TXN, version, identity(stage, prefix, **who) | {f"{prefix}topics": topics}


def add_offsets(stage: Stage, version: int = 3, **who: Any) -> Request:
    return ADD_OFFSETS_TO_TXN, version, identity(stage, **who) | {"group_id": stage.group}


def end(stage: Stage, *, commit: bool = True, version: int | None = None, **who: Any) -> Request:
    return END_TXN, version or stage.versions.end, identity(stage, **who) | {"committed": commit}


def commit_offset(
    stage: Stage, *, offset: int = 5, topic: str | None = None, version: int | None = None, **changes: Any
) -> Request:
    member = ("group_id", "generation_id", "member_id", "group_instance_id")
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": stage.topic if topic is None else topic, "partitions": [partition]}]
    fields = identity(stage, **changes) | {"group_id": stage.group, "topics": topics}
    return (
        TXN_OFFSET_COMMIT,
        version or stage.versions.offsets,
        fields | {name: changes[name] for name in member if name in changes},
    )


def produce(
    stage: Stage,
    *,
    value: bytes = b"mine",
    sequence: int = 0,
    partition: int = 0,
    topic: str | None = None,
    attributes: int = TRANSACTIONAL,
    version: int | None = None,
    timestamp_ms: int | None = None,
    **who: Any,
) -> Request:
    asking = identity(stage, **who)
    producer = (asking["producer_id"], asking["producer_epoch"], sequence)
    records = batch(record(value), attributes=attributes, producer=producer, timestamp_ms=timestamp_ms)
    data = [{"index": partition, "records": records}]
    topics = [{"name": stage.topic if topic is None else topic, "partition_data": data}]
    fields = {
        "transactional_id": asking["transactional_id"],
        "acks": -1,
        "timeout": TIMEOUT_MS,
        "topic_data": topics,
    }
    return PRODUCE, version or stage.versions.produce, fields


def write_marker(
    stage: Stage,
    *,
    commit: bool = False,
    partition: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
    **who: Any,
) -> Request:
    asking = identity(stage, **who)
    marker = {
        "producer_id": asking["producer_id"],
        "producer_epoch": asking["producer_epoch"],
        "transaction_result": commit,
        "topics": [{"name": stage.topic, "partition_indexes": (partition,)}],
        "coordinator_epoch": coordinator_epoch,
    }
    return WRITE_TXN_MARKERS, version, {"markers": [marker]}
