"""The commands of a transaction coordinator shard, their responses, and its effects.

A rejected command raises KafkaError. New producer ids come with the command, because the controller allocates them. If
`TransactionShard.needs_producer_id` is False, the command may carry NO_PRODUCER_ID.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.coordination import Command, WritingCommand
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId(WritingCommand[ProducerIdAndEpoch]):
    """A producer starts, or starts again after an error (KIP-360: then `expected` is its id and epoch).

    `new_producer_id` is used if the transactional id has none yet, or if its epochs are exhausted.
    """

    transactional_id: str
    timeout_ms: int
    new_producer_id: int
    expected: ProducerIdAndEpoch | None = None
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(WritingCommand[None]):
    """`transaction_version` is the client's: 0, or 2 with an epoch per transaction (KIP-890)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    transaction_version: int = 0


class PartitionVerified(NamedTuple):
    partition: TopicPartition
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPartitions(Command[tuple[PartitionVerified, ...]]):
    """Asks whether the partitions are in the producer's ongoing transaction (KIP-890). Changes nothing."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(WritingCommand[ProducerIdAndEpoch]):
    """Returns the id and epoch of the next transaction: with version 2 each transaction has its own epoch.

    `new_producer_id` is used if the epochs are exhausted.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    new_producer_id: int
    transaction_version: int = 0


class WriteMarkers(NamedTuple):
    """An effect: the runtime writes a marker to every partition of the transaction and retries until that succeeds.

    It reports progress with `MarkersWritten`. `transaction_version` is that of EndTxn. From 2 on the epoch of
    the marker is one higher than that of the records (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten(WritingCommand[None]):
    """These partitions have the marker, or are deleted. When all have it, the transaction is complete.

    `markers` is compared by identity: producers of version 0 end all their transactions with one epoch, so that nothing
    else distinguishes a late report about one transaction from a report about the next.
    """

    markers: WriteMarkers
    partitions: tuple[TopicPartition, ...]


class DescribedTransaction(NamedTuple):
    transactional_id: str
    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTransaction(Command[DescribedTransaction]):
    transactional_id: str


class ListedTransaction(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTransactions(Command[tuple[ListedTransaction, ...]]):
    """Filters: producer ids, state names, open for longer than `duration_ms`, an RE2 pattern for the id (KIP-1152)."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[str] = frozenset()
    duration_ms: int = -1
    transactional_id_pattern: str | None = None
