"""AddPartitionsToTxn (key 24, versions 0-5) and EndTxn (key 26, versions 0-5), broker side.

Hand-written because these two take most of the time of a small transaction. Both: v3 flexible. AddPartitionsToTxn: v4
several transactions, and verification without adding (KIP-890). EndTxn: v5 returns the producer id and epoch for the
next transaction (KIP-890).
"""

from collections.abc import Sequence
from struct import Struct, unpack_from
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.primitives import (
    INT32,
    MALFORMED,
    NO_TAGS,
    NO_THROTTLE_TIME,
    check_in_bounds,
    count_elements,
    encode_compact_string,
    encode_partition_errors,
    encode_string,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    required,
    skip_tags,
)
from ottla.protocol.varint import encode_uvarint

_FLEXIBLE_FROM = 3
_SEVERAL_TRANSACTIONS_FROM = 4
_NEXT_EPOCH_FROM = 5

_PRODUCER = Struct(">qh")
_PRODUCER_AND_FLAG = Struct(">qh?")  # whether to verify only, or whether to commit
_END = Struct(">ih")
_END_V3 = Struct(">ihB")
_END_V5 = Struct(">ihqhB")


Topic = tuple[str, tuple[int, ...]]


class PartitionsOfTransaction(NamedTuple):
    """`topics` has the names and partition indexes of the request, `partitions` the same as a flat tuple."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[Topic]
    partitions: tuple[TopicPartition, ...]


class EndTxnRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


# -- AddPartitionsToTxn


def decode_add_partitions_request(body: memoryview, version: int) -> list[PartitionsOfTransaction]:
    """The transactions of the request; before v4 it has exactly one."""
    try:
        if version >= _SEVERAL_TRANSACTIONS_FROM:
            return _decode_several(body)
        return [_decode_flexible(body) if version >= _FLEXIBLE_FROM else _decode_rigid(body)]
    except MALFORMED as error:
        raise MalformedRequest(f"AddPartitionsToTxn v{version} cannot be read: {error}") from error


def _decode_several(body: memoryview) -> list[PartitionsOfTransaction]:
    transactions = []
    count, position = read_compact_count(body, 0)
    elements = count_elements(0, count)
    for _ in range(count):
        transactional_id, position = _read_compact_name(body, position)
        producer_id, epoch, verify_only = _PRODUCER_AND_FLAG.unpack_from(body, position)
        topics, position, elements = _read_compact_topics(body, position + _PRODUCER_AND_FLAG.size, elements)
        position = skip_tags(body, position)
        transactions.append(
            PartitionsOfTransaction(
                transactional_id, producer_id, epoch, verify_only, topics, _flatten(topics)
            )
        )
    check_in_bounds(body, skip_tags(body, position))
    return transactions


def _decode_flexible(body: memoryview) -> PartitionsOfTransaction:
    transactional_id, position = _read_compact_name(body, 0)
    producer_id, epoch = _PRODUCER.unpack_from(body, position)
    topics, position, _ = _read_compact_topics(body, position + _PRODUCER.size, 0)
    check_in_bounds(body, skip_tags(body, position))
    return PartitionsOfTransaction(transactional_id, producer_id, epoch, False, topics, _flatten(topics))


def _decode_rigid(body: memoryview) -> PartitionsOfTransaction:
    transactional_id, position = read_string(body, 0)
    producer_id, epoch = _PRODUCER.unpack_from(body, position)
    count, position = read_count(body, position + _PRODUCER.size)
    elements = count_elements(0, count)
    topics: list[Topic] = []
    for _ in range(count):
        name, position = read_string(body, position)
        name = required(name)
        number, position = read_count(body, position)
        elements = count_elements(elements, number)
        topics.append((name, _read_indexes(body, position, number)))
        position += number * INT32.size
    check_in_bounds(body, position)
    return PartitionsOfTransaction(
        required(transactional_id), producer_id, epoch, False, topics, _flatten(topics)
    )


def _read_compact_topics(body: memoryview, position: int, elements: int) -> tuple[list[Topic], int, int]:
    """The topics, the position after them, and the number of elements of the request so far."""
    topics: list[Topic] = []
    count, position = read_compact_count(body, position)
    elements = count_elements(elements, count)
    for _ in range(count):
        name, position = _read_compact_name(body, position)
        number, position = read_compact_count(body, position)
        elements = count_elements(elements, number)
        topics.append((name, _read_indexes(body, position, number)))
        position = skip_tags(body, position + number * INT32.size)
    return topics, position, elements


def _flatten(topics: list[Topic]) -> tuple[TopicPartition, ...]:
    return tuple([TopicPartition(name, index) for name, indexes in topics for index in indexes])


def _read_indexes(body: memoryview, position: int, number: int) -> tuple[int, ...]:
    if number * INT32.size > len(body) - position:
        raise ValueError(f"an array claims {number} partitions where {len(body) - position} bytes are left")
    return unpack_from(f">{number}i", body, position)


def _read_compact_name(body: memoryview, position: int) -> tuple[str, int]:
    name, position = read_compact_string(body, position)
    return required(name), position


def encode_add_partitions_response(
    transactions: Sequence[PartitionsOfTransaction], codes: Sequence[Sequence[ErrorCode]], version: int
) -> bytes:
    """`codes` has the codes of each transaction's partitions, in their order."""
    flexible = version >= _FLEXIBLE_FROM
    encoded = [
        _encode_topics(transaction, each, flexible)
        for transaction, each in zip(transactions, codes, strict=True)
    ]
    if version < _SEVERAL_TRANSACTIONS_FROM:
        return NO_THROTTLE_TIME + encoded[0]
    parts = [NO_THROTTLE_TIME, b"\x00\x00", encode_uvarint(len(transactions) + 1)]
    for transaction, topics in zip(transactions, encoded, strict=True):
        parts += (encode_compact_string(transaction.transactional_id), topics)
    parts.append(NO_TAGS)
    return b"".join(parts)


def _encode_topics(transaction: PartitionsOfTransaction, codes: Sequence[ErrorCode], flexible: bool) -> bytes:
    encode_name = encode_compact_string if flexible else encode_string
    topics = [(encode_name(name), indexes) for name, indexes in transaction.topics]
    parts = encode_partition_errors(topics, iter(codes), flexible=flexible)
    return b"".join((*parts, NO_TAGS)) if flexible else b"".join(parts)


# -- EndTxn


def decode_end_txn_request(body: memoryview, version: int) -> EndTxnRequest:
    try:
        if version >= _FLEXIBLE_FROM:
            transactional_id, position = _read_compact_name(body, 0)
            end = skip_tags(body, position + _PRODUCER_AND_FLAG.size)
        else:
            name, position = read_string(body, 0)
            transactional_id, end = required(name), position + _PRODUCER_AND_FLAG.size
        check_in_bounds(body, end)
        return EndTxnRequest(transactional_id, *_PRODUCER_AND_FLAG.unpack_from(body, position))
    except MALFORMED as error:
        raise MalformedRequest(f"EndTxn v{version} cannot be read: {error}") from error


def encode_end_txn_response(
    error_code: ErrorCode, producer_id: int, producer_epoch: int, version: int
) -> bytes:
    if version >= _NEXT_EPOCH_FROM:
        return _END_V5.pack(0, error_code, producer_id, producer_epoch, 0)
    return _END_V3.pack(0, error_code, 0) if version >= _FLEXIBLE_FROM else _END.pack(0, error_code)
