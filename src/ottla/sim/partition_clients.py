"""An idempotent producer and a reader of one partition. They record what they see in a `History`."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from uuid import UUID

from kio.schema.fetch.v17.response import PartitionData

from ottla.model.errors import ErrorCode
from ottla.records.header import HEADER_SIZE, read_header
from ottla.records.records import Batch, Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.history import History, Value, Violation

# As in Kafka's producer, because the broker remembers the last five batches of a producer.
_IN_FLIGHT_MAX = 5
_RECORDS_PER_BATCH_MAX = 4
_VALUE_PADDING_MAX = 900
RETRY_PAUSE_S = 0.2
# While all brokers are fenced, no replication factor is valid.
_CREATED = (ErrorCode.none, ErrorCode.topic_already_exists, ErrorCode.invalid_replication_factor)
_PAUSE_S_MAX = 4.0
# Errors around a restart of a broker or a new leader, after which Kafka's clients retry.
RETRIABLE = frozenset(
    {
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.not_leader_or_follower,
        ErrorCode.leader_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.not_controller,
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
    }
)
# Old producers take NOT_CONTROLLER in the response to InitProducerId for fatal.
PRODUCER_RETRIABLE = RETRIABLE - {ErrorCode.not_controller}


async def create_topic_with_retries(
    client: SimClient, topic: str, partitions: int, configs: dict[str, str], replication_factor: int = 1
) -> UUID:
    """Creates a topic, with as many retries as needed, and returns its id."""
    while True:
        try:
            error = await client.create_topic(topic, partitions, configs, replication_factor)
            if error not in _CREATED and error not in RETRIABLE:
                raise Violation(f"CreateTopics of {topic} got {error.name}")
            found = (await client.metadata(topic)).topics[0]
            if found.error_code == ErrorCode.none and found.topic_id is not None:
                return found.topic_id
        except OSError:
            pass
        await asyncio.sleep(RETRY_PAUSE_S)


@dataclass
class _Batch:
    values: list[Value]
    data: bytes
    was_sent: bool = False


class Rejection(Enum):
    DUPLICATE = auto()  # the batch is in the log: the leader was right not to append it again
    UNDECIDED = auto()  # the next try will tell
    WRONG = auto()


def judge_rejection(error: ErrorCode, later: Sequence[tuple[ErrorCode, bool]]) -> Rejection:
    """Judges the rejection of a batch by what became of the `later` ones: the response, and if that was a retry.

    A leader that was restarted knows only the last batch of a producer before its newest snapshot, because Kafka's
    snapshot format has no others. It takes a retry of an earlier batch for a gap. That is legal only if the next batch
    was sent before: otherwise this batch is the last one. A later batch that is accepted proves that this one is in the
    log. A later batch without a definite response, as while the leader waits for a follower, proves nothing yet. If
    records or producers are lost, all later batches are rejected in the end.
    """
    if error != ErrorCode.out_of_order_sequence_number or not later or not later[0][1]:
        return Rejection.WRONG
    errors = {later_error for later_error, _ in later}
    if ErrorCode.none in errors:
        return Rejection.DUPLICATE
    return Rejection.UNDECIDED if errors & RETRIABLE else Rejection.WRONG


class IdempotentProducer:
    """Sends numbered records to one partition, up to five batches at once, and retries until they are acknowledged."""

    def __init__(
        self,
        client: SimClient,
        random: Random,
        now_ms: Callable[[], int],
        history: History,
        name: str,
        topic_id: UUID,
        partition: int,
    ) -> None:
        self._client = client
        self._random = random
        self._now_ms = now_ms
        self._history = history[partition]
        self._name = name
        self._topic_id = topic_id
        self._partition = partition
        self._producer_id = -1
        self._producer_epoch = -1
        self._next_number = 0
        self._has_acknowledged = False
        self._unacknowledged: list[_Batch] = []

    async def run(self, batches: int) -> None:
        await self._init()
        left = batches
        while left or self._unacknowledged:
            # A leader that does not know the producer accepts any first sequence, so the first batch goes alone.
            in_flight_max = _IN_FLIGHT_MAX if self._has_acknowledged else 1
            room = self._random.randint(1, in_flight_max) - len(self._unacknowledged)
            for _ in range(min(room, left)):
                self._unacknowledged.append(self._new_batch())
                left -= 1
            if not await self._send_all():
                await asyncio.sleep(RETRY_PAUSE_S)
            elif self._random.random() < 0.8:
                await asyncio.sleep(self._random.random() * _PAUSE_S_MAX)

    async def _init(self) -> None:
        while True:
            try:
                error, self._producer_id, self._producer_epoch = await self._client.init_producer_id()
            except OSError:
                error = ErrorCode.request_timed_out
            if error == ErrorCode.none:
                return
            if error not in PRODUCER_RETRIABLE:
                raise Violation(f"InitProducerId got {error.name}")
            await asyncio.sleep(RETRY_PAUSE_S)

    def _new_batch(self) -> _Batch:
        now_ms = self._now_ms()
        base = self._next_number
        count = self._random.randint(1, _RECORDS_PER_BATCH_MAX)
        values = [Value(self._name, base + index) for index in range(count)]
        self._next_number += count
        records = [
            Record(index, now_ms, value.encode(), bytes(self._random.randrange(_VALUE_PADDING_MAX)))
            for index, value in enumerate(values)
        ]
        data = build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=base,
        )
        return _Batch(values, data)

    async def _send_all(self) -> bool:
        """Sends the unacknowledged batches in order. Returns True if all were acknowledged."""
        batches = list(self._unacknowledged)
        retried = [batch.was_sent for batch in batches]
        for batch in batches:
            batch.was_sent = True
            self._history.attempted.update(batch.values)
        responses = await asyncio.gather(*(self._send(batch.data) for batch in batches))
        for index, (error, offset) in enumerate(responses):
            batch = batches[index]
            if error in RETRIABLE:
                return False
            if error == ErrorCode.none:
                for delta, value in enumerate(batch.values):
                    self._history.acknowledge(value, offset + delta)
            else:
                later = [
                    (response[0], retry)
                    for response, retry in zip(responses[index + 1 :], retried[index + 1 :], strict=True)
                ]
                match judge_rejection(error, later):
                    case Rejection.UNDECIDED:
                        return False
                    case Rejection.WRONG:
                        raise Violation(
                            f"{self._name} got {error.name} for the batch that begins with {batch.values[0]}"
                        )
                    case Rejection.DUPLICATE:
                        pass  # it is in the log; the order of the log is checked at the end
            self._unacknowledged.pop(0)
            self._has_acknowledged = True
        return True

    async def _send(self, data: bytes) -> tuple[ErrorCode, int]:
        try:
            response = await self._client.produce(self._topic_id, self._partition, data)
        except OSError:
            return ErrorCode.request_timed_out, -1
        return response.error_code, response.base_offset


class Reader:
    """Reads one partition from its start and records what it sees."""

    def __init__(self, client: SimClient, history: History, topic_id: UUID, partition: int) -> None:
        self._client = client
        self.partition = partition
        self._history = history[partition]
        self._topic_id = topic_id

    async def follow(self) -> None:
        """Reads until cancelled."""
        offset = 0
        while True:
            try:
                offset = (await self._read(offset))[1]
            except OSError:
                await asyncio.sleep(RETRY_PAUSE_S)

    async def read_all(self) -> list[tuple[int, Value]]:
        """Reads the whole partition up to the high watermark, while there are no faults."""
        records: list[tuple[int, Value]] = []
        offset = 0
        while True:
            try:
                found, offset, high_watermark = await self._read(offset)
            except OSError:
                await asyncio.sleep(RETRY_PAUSE_S)
                continue
            records += found
            if offset >= high_watermark >= 0:
                return records

    async def _read(self, offset: int) -> tuple[list[tuple[int, Value]], int, int]:
        """Returns the records, the next offset, and the high watermark or -1 if the broker could not answer."""
        response = await self._client.fetch(self._topic_id, self.partition, offset)
        if response.error_code in RETRIABLE:
            await asyncio.sleep(RETRY_PAUSE_S)
            return [], offset, -1
        if response.error_code != ErrorCode.none:
            raise Violation(f"a fetch from offset {offset} got {response.error_code.name}")
        self._history.see_high_watermark(response.high_watermark)
        records = [
            (record.offset, Value.decode(record.key or b""))
            for record in records_of(response)
            if record.offset >= offset
        ]
        for expected, (found, value) in enumerate(records, offset):
            if found != expected:
                raise Violation(
                    f"skipped poll: a fetch from offset {offset} got {found}, expected {expected}"
                )
            self._history.see(found, value)
        return records, records[-1][0] + 1 if records else offset, response.high_watermark


def records_of(response: PartitionData) -> list[Record]:
    return [record for batch in batches_of(response) for record in batch.records]


def batches_of(response: PartitionData) -> list[Batch]:
    return read_batches(_whole_batches(response.records or b""))


def _whole_batches(data: bytes) -> bytes:
    """Drops the last batch of a fetch if it is cut off."""
    end = 0
    while len(data) - end >= HEADER_SIZE and (size := read_header(data, end).size) <= len(data) - end:
        end += size
    return data[:end]
