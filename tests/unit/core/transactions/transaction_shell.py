"""A shell for one shard of the transaction coordinator: its log as bytes, its effects, and short commands."""

from typing import Any

from tests.unit.core.groups.shell import START_MS, FakeShell

from ottla.core.coordination import Command, Decision
from ottla.core.transactions.commands import (
    AddPartitions,
    DescribedTransaction,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    MarkersWritten,
    ProducerIdAndEpoch,
    VerifyPartitions,
    WriteMarkers,
)
from ottla.core.transactions.settings import TransactionSettings
from ottla.core.transactions.shard import TransactionShard
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.transaction_records.codec import decode_record, encode_key, encode_value
from ottla.protocol.transaction_records.records import TransactionLogKey, TransactionLogValue

ORDERS = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
CLICKS = TopicPartition("clicks", 0)
TIMEOUT_MS = 60_000
FIRST_PRODUCER_ID = 1000
LAST_USABLE_EPOCH = 32766


class TransactionShell(FakeShell):
    """`effects` are the markers asked for since the last (re)load; producer ids are allocated as by the controller."""

    machine: TransactionShard

    def __init__(self, **settings: Any) -> None:
        super().__init__(TransactionShard(TransactionSettings(**settings)), START_MS)
        self.effects: list[WriteMarkers] = []
        self.next_producer_id = FIRST_PRODUCER_ID
        self._perform(self.machine.on_loaded(self.now_ms))

    def new_producer_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    # -- commands

    def init_command(
        self,
        transactional_id: str = "id",
        expected: tuple[int, int] | None = None,
        timeout_ms: int = TIMEOUT_MS,
        **flags: bool,
    ) -> InitProducerId:
        return InitProducerId(
            transactional_id=transactional_id,
            timeout_ms=timeout_ms,
            new_producer_id=self.new_producer_id(),
            expected=None if expected is None else ProducerIdAndEpoch(*expected),
            **flags,
        )

    def init(
        self,
        transactional_id: str = "id",
        expected: tuple[int, int] | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> ProducerIdAndEpoch:
        response: ProducerIdAndEpoch = self.ask(self.init_command(transactional_id, expected, timeout_ms))
        return response

    def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "id",
        version: int = 2,
    ) -> None:
        self.ask(
            add_command(
                producer, *(partitions or (ORDERS,)), transactional_id=transactional_id, version=version
            )
        )

    def end(
        self, producer: tuple[int, int], commit: bool, transactional_id: str = "id", version: int = 2
    ) -> ProducerIdAndEpoch:
        response: ProducerIdAndEpoch = self.ask(self.end_command(producer, commit, transactional_id, version))
        return response

    def end_command(
        self, producer: tuple[int, int], commit: bool, transactional_id: str = "id", version: int = 2
    ) -> EndTransaction:
        return EndTransaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            commit=commit,
            new_producer_id=self.new_producer_id(),
            transaction_version=version,
        )

    def acknowledge(self, markers: WriteMarkers, *partitions: TopicPartition) -> None:
        """All partitions, unless some are given."""
        self.ask(MarkersWritten(markers=markers, partitions=partitions or markers.partitions))

    def acknowledge_all(self) -> None:
        while self.effects:
            self.acknowledge(self.effects.pop(0))

    def described(self, transactional_id: str = "id") -> DescribedTransaction:
        response: DescribedTransaction = self.ask(DescribeTransaction(transactional_id=transactional_id))
        return response

    def state(self, transactional_id: str = "id") -> str:
        return self.described(transactional_id).state

    def rejected(self, command: Command[Any], code: ErrorCode) -> KafkaError:
        """Asserts that a rejected command changes nothing: neither the state, nor the log, nor timers."""
        before = (self.machine.durable_state(), list(self.records), dict(self.timers), list(self.effects))
        waiter = self.decide(command)
        rejection = self.replies[waiter]
        assert isinstance(rejection, KafkaError), f"{command} was accepted: {rejection}"
        assert rejection.code is code, f"{rejection}"
        assert (self.machine.durable_state(), self.records, self.timers, self.effects) == before
        return rejection

    # -- the log

    def given(self, transactional_id: str = "id", **fields: Any) -> None:
        """As if this record had been written before."""
        record = {
            "producer_id": FIRST_PRODUCER_ID,
            "previous_producer_id": FIRST_PRODUCER_ID,
            "producer_epoch": 0,
            "transaction_timeout_ms": TIMEOUT_MS,
            "transaction_partitions": (),
            "transaction_last_update_timestamp_ms": self.now_ms,
            "transaction_start_timestamp_ms": self.now_ms,
        }
        value = TransactionLogValue(**{**record, **fields})
        self.records.append((TransactionLogKey(transactional_id=transactional_id), value))
        self.next_producer_id = max(self.next_producer_id, FIRST_PRODUCER_ID + 1)
        self.restart()

    def restart(self) -> None:
        self.reload(TransactionShard(self.machine.settings))

    def reload(self, fresh: Any) -> None:
        self.effects.clear()
        super().reload(fresh)

    def rebuilt(self, fresh: Any) -> Any:
        for key, value in self.records:
            replay_as_bytes(key, value, fresh)
        return fresh

    def _perform(self, decision: Decision[Any, Any]) -> None:
        super()._perform(decision)
        self.effects += decision.effects


def replay_as_bytes(key: Any, value: Any, machine: Any) -> None:
    record = decode_record(encode_key(key), None if value is None else encode_value(value))
    assert record == (key, value)
    machine.replay(*record)


def add_command(
    producer: tuple[int, int], *partitions: TopicPartition, transactional_id: str = "id", version: int = 2
) -> AddPartitions:
    return AddPartitions(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        partitions=partitions,
        transaction_version=version,
    )


def verify_command(
    producer: tuple[int, int], *partitions: TopicPartition, transactional_id: str = "id"
) -> VerifyPartitions:
    return VerifyPartitions(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        partitions=partitions,
    )
