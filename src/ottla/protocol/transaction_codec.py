"""AddPartitionsToTxn (key 24, versions 0-5) and EndTxn (key 26, versions 0-5) from the broker's side.

A small transaction is mostly these two. Both: v3 flexible. AddPartitionsToTxn: v4 several transactions, and asking
without adding (KIP-890). EndTxn: v5 tells with which id and epoch the producer goes on (KIP-890).
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
    encode_compact_string,
    encode_string,
    end_request,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    required,
    skip_tags,
)
from ottla.protocol.varint import encode_uvarint

FLEXIBLE_FROM = 3
SEVERAL_TRANSACTIONS_FROM = 4
NEXT_EPOCH_FROM = 5

STRING_BYTES_MAX = 0x7FFF
NO_THROTTLE_TIME = bytes(4)

_PRODUCER = Struct(">qh")
_PRODUCER_AND_FLAG = Struct(">qh?")  # whether to verify only, or whether to commit
_ANSWER = Struct(">ih")
_FLEXIBLE_ANSWER = Struct(">ihB")
_END = Struct(">ih")
_END_V3 = Struct(">ihB")
_END_V5 = Struct(">ihqhB")


class PartitionsOfTransaction(NamedTuple):
    """`partitions` are in the order of the request, in which `topics` has a name and a number of them each time."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    topics: list[tuple[str, int]]
    partitions: tuple[TopicPartition, ...]


class EndTxnRequest(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


# -- AddPartitionsToTxn


def decode_add_partitions_request(body: memoryview, version: int) -> list[PartitionsOfTransaction]:
    """One transaction for each that is asked for; before v4 a request has exactly one."""
    try:
        if version >= SEVERAL_TRANSACTIONS_FROM:
            return _decode_several(body)
        return [_decode_flexible(body) if version >= FLEXIBLE_FROM else _decode_rigid(body)]
    except MALFORMED as error:
        raise MalformedRequest(f"AddPartitionsToTxn v{version} cannot be read: {error}") from error


def _decode_several(body: memoryview) -> list[PartitionsOfTransaction]:
    transactions = []
    count, position = read_compact_count(body, 0)
    for _ in range(count):
        transactional_id, position = _read_compact_name(body, position)
        producer_id, epoch, verify_only = _PRODUCER_AND_FLAG.unpack_from(body, position)
        topics, partitions, position = _read_compact_topics(body, position + _PRODUCER_AND_FLAG.size)
        position = skip_tags(body, position)
        transactions.append(
            PartitionsOfTransaction(transactional_id, producer_id, epoch, verify_only, topics, partitions)
        )
    end_request(body, skip_tags(body, position))
    return transactions


def _decode_flexible(body: memoryview) -> PartitionsOfTransaction:
    transactional_id, position = _read_compact_name(body, 0)
    producer_id, epoch = _PRODUCER.unpack_from(body, position)
    topics, partitions, position = _read_compact_topics(body, position + _PRODUCER.size)
    end_request(body, skip_tags(body, position))
    return PartitionsOfTransaction(transactional_id, producer_id, epoch, False, topics, partitions)


def _decode_rigid(body: memoryview) -> PartitionsOfTransaction:
    transactional_id, position = read_string(body, 0)
    producer_id, epoch = _PRODUCER.unpack_from(body, position)
    count, position = read_count(body, position + _PRODUCER.size)
    topics: list[tuple[str, int]] = []
    partitions: list[TopicPartition] = []
    for _ in range(count):
        name, position = read_string(body, position)
        name = required(name)
        number, position = read_count(body, position)
        partitions += [TopicPartition(name, index) for index in _read_indexes(body, position, number)]
        position += number * INT32.size
        topics.append((name, number))
    end_request(body, position)
    return PartitionsOfTransaction(
        required(transactional_id), producer_id, epoch, False, topics, tuple(partitions)
    )


def _read_compact_topics(
    body: memoryview, position: int
) -> tuple[list[tuple[str, int]], tuple[TopicPartition, ...], int]:
    topics: list[tuple[str, int]] = []
    partitions: list[TopicPartition] = []
    count, position = read_compact_count(body, position)
    for _ in range(count):
        name, position = _read_compact_name(body, position)
        number, position = read_compact_count(body, position)
        partitions += [TopicPartition(name, index) for index in _read_indexes(body, position, number)]
        position = skip_tags(body, position + number * INT32.size)
        topics.append((name, number))
    return topics, tuple(partitions), position


def _read_indexes(body: memoryview, position: int, number: int) -> tuple[int, ...]:
    if number * INT32.size > len(body) - position:
        raise ValueError(f"an array claims {number} partitions where {len(body) - position} bytes are left")
    return unpack_from(f">{number}i", body, position)


def _read_compact_name(body: memoryview, position: int) -> tuple[str, int]:
    """A compact string has room for more than Kafka allows, and than the record of a transaction has."""
    start = position
    name, position = read_compact_string(body, position)
    if position - start > STRING_BYTES_MAX and len(required(name).encode()) > STRING_BYTES_MAX:
        raise ValueError(f"a string has more than {STRING_BYTES_MAX} bytes")
    return required(name), position


def encode_add_partitions_response(
    transactions: Sequence[PartitionsOfTransaction], codes: Sequence[Sequence[ErrorCode]], version: int
) -> bytes:
    """`codes` has those of each transaction's partitions, in their order."""
    if version < SEVERAL_TRANSACTIONS_FROM:
        return NO_THROTTLE_TIME + _encode_topics(transactions[0], codes[0], version >= FLEXIBLE_FROM)
    parts = [NO_THROTTLE_TIME, b"\x00\x00", encode_uvarint(len(transactions) + 1)]
    for transaction, each in zip(transactions, codes, strict=True):
        parts += (
            encode_compact_string(transaction.transactional_id),
            _encode_topics(transaction, each, flexible=True),
        )
    parts.append(NO_TAGS)
    return b"".join(parts)


def _encode_topics(transaction: PartitionsOfTransaction, codes: Sequence[ErrorCode], flexible: bool) -> bytes:
    topics, partitions = transaction.topics, transaction.partitions
    parts = [encode_uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))]
    start = 0
    for name, number in topics:
        answers = zip(partitions[start : start + number], codes[start : start + number], strict=True)
        start += number
        if flexible:
            parts += (encode_compact_string(name), encode_uvarint(number + 1))
            parts += [_FLEXIBLE_ANSWER.pack(index, code, 0) for (_, index), code in answers]
            parts.append(NO_TAGS)
        else:
            parts += (encode_string(name), INT32.pack(number))
            parts += [_ANSWER.pack(index, code) for (_, index), code in answers]
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


# -- EndTxn


def decode_end_txn_request(body: memoryview, version: int) -> EndTxnRequest:
    try:
        if version >= FLEXIBLE_FROM:
            transactional_id, position = _read_compact_name(body, 0)
            end = skip_tags(body, position + _PRODUCER_AND_FLAG.size)
        else:
            name, position = read_string(body, 0)
            transactional_id, end = required(name), position + _PRODUCER_AND_FLAG.size
        end_request(body, end)
        return EndTxnRequest(transactional_id, *_PRODUCER_AND_FLAG.unpack_from(body, position))
    except MALFORMED as error:
        raise MalformedRequest(f"EndTxn v{version} cannot be read: {error}") from error


def encode_end_txn_response(
    error_code: ErrorCode, producer_id: int, producer_epoch: int, version: int
) -> bytes:
    if version >= NEXT_EPOCH_FROM:
        return _END_V5.pack(0, error_code, producer_id, producer_epoch, 0)
    return _END_V3.pack(0, error_code, 0) if version >= FLEXIBLE_FROM else _END.pack(0, error_code)
