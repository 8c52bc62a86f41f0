"""What a shard of the transaction coordinator can be asked, what it answers, and what it wants done.

Refusals are KafkaErrors. Producer ids come in with the command, as they are handed out by the controller; where
`TransactionShard.needs_producer_id` says that none will be taken, NO_PRODUCER_ID will do.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


class ProducerIdAndEpoch(NamedTuple):
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerId(Command[ProducerIdAndEpoch]):
    """A producer starts, or starts over after an error (KIP-360: then it names itself as `expected`).

    `new_producer_id` is taken where the transactional id has none yet, or its epochs are exhausted.
    """

    transactional_id: str
    timeout_ms: int
    new_producer_id: int
    expected: ProducerIdAndEpoch | None = None
    enable_two_phase_commit: bool = False
    keep_prepared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions(Command[None]):
    """`transaction_version` is the one that the client speaks: 0, or 2 with KIP-890's epoch per transaction."""

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
    """Whether the partitions are in the producer's ongoing transaction (KIP-890); nothing is changed."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction(Command[ProducerIdAndEpoch]):
    """Answered with the id and epoch to go on with: with version 2 the epoch is another for each transaction.

    `new_producer_id` is taken where the epochs are exhausted.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    new_producer_id: int
    transaction_version: int = 0


class WriteMarkers(NamedTuple):
    """An effect: the outcome goes into every partition of the transaction, however often that has to be tried.

    The shell answers each piece of it with `MarkersWritten`. `transaction_version` is the one that the transaction was
    ended with: from 2 on the epoch of the marker is one more than that of the records (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    partitions: tuple[TopicPartition, ...]
    transaction_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten(Command[None]):
    """These partitions have the marker, or are gone for good. When all have it, the transaction is complete.

    It counts only for the very effect that it answers: producers of version 0 end all their transactions under one
    epoch, so that nothing else would tell a late answer for one transaction from that for the next.
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
    """Filters: producer ids, names of states, open for longer than `duration_ms`, an RE2 pattern of ids (KIP-1152)."""

    producer_ids: frozenset[int] = frozenset()
    states: frozenset[str] = frozenset()
    duration_ms: int = -1
    transactional_id_pattern: str | None = None
