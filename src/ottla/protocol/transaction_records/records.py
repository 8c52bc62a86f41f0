"""The records of `__transaction_state`: one per change of a transactional id. A tombstone deletes the id."""

from dataclasses import dataclass, field
from typing import ClassVar

from kio.static.primitive import i8, i16, i32, i64

from ottla.protocol.record_schema import INT8, INT16, INT32, INT64, STRING, NestedSchema, RecordSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogKey(RecordSchema):
    """Never flexible, because compaction compares its bytes, which must be the same in all releases."""

    __api_key__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = False
    transactional_id: str = field(metadata=STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPartitions(NestedSchema):
    topic: str = field(metadata=STRING)
    partition_ids: tuple[i32, ...] = field(metadata=INT32)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLogValue(RecordSchema):
    """`previous_producer_id`, `next_producer_id` and `next_producer_epoch` distinguish a producer that retries EndTxn
    from a zombie, even if its epochs are exhausted (KIP-890). `transaction_partitions` is None in states without
    partitions.
    """

    __api_key__: ClassVar[int] = 0
    __version__: ClassVar[int] = 1
    __first_flexible__: ClassVar[int] = 1
    producer_id: i64 = field(metadata=INT64)
    previous_producer_id: i64 = field(metadata={**INT64, "tag": 0, "since": 1}, default=i64(-1))
    next_producer_id: i64 = field(metadata={**INT64, "tag": 1, "since": 1}, default=i64(-1))
    producer_epoch: i16 = field(metadata=INT16)
    next_producer_epoch: i16 = field(metadata={**INT16, "tag": 3, "since": 1}, default=i16(-1))
    transaction_timeout_ms: i32 = field(metadata=INT32)
    transaction_status: i8 = field(metadata=INT8)
    transaction_partitions: tuple[TransactionPartitions, ...] | None
    transaction_last_update_timestamp_ms: i64 = field(metadata=INT64)
    transaction_start_timestamp_ms: i64 = field(metadata=INT64)
    client_transaction_version: i16 = field(metadata={**INT16, "tag": 2, "since": 1}, default=i16(0))
