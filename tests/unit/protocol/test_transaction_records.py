"""Records of `__transaction_state` have Kafka's bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol import coordinator_codec
from ottla.protocol.transaction_records.codec import decode_record, encode_key, encode_value
from ottla.protocol.transaction_records.records import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)

KEY = TransactionLogKey(transactional_id="tx")
ONGOING = TransactionLogValue(
    producer_id=0,
    previous_producer_id=0,
    producer_epoch=0,
    transaction_timeout_ms=60_000,
    transaction_status=1,
    transaction_partitions=(TransactionPartitions(topic="t", partition_ids=(0,)),),
    transaction_last_update_timestamp_ms=1794741779134,
    transaction_start_timestamp_ms=1794741779134,
)
EMPTY = TransactionLogValue(
    producer_id=1,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=0,
    transaction_partitions=None,
    transaction_last_update_timestamp_ms=4,
    transaction_start_timestamp_ms=-1,
)


def test_a_transaction_has_the_bytes_of_kafkas() -> None:
    assert encode_key(KEY).hex() == "000000027478"
    assert encode_value(ONGOING).hex() == (
        "0001000000000000000000000000ea6001020274020000000000000001a1def23abe000001a1def23abe0100080000000000000000"
    )


@pytest.mark.parametrize(
    "value",
    [
        ONGOING,
        EMPTY,
        TransactionLogValue(
            producer_id=1,
            previous_producer_id=5,
            next_producer_id=6,
            producer_epoch=32767,
            next_producer_epoch=0,
            transaction_timeout_ms=3,
            transaction_status=2,
            transaction_partitions=(),
            transaction_last_update_timestamp_ms=4,
            transaction_start_timestamp_ms=3,
            client_transaction_version=2,
        ),
        None,
    ],
)
def test_a_transaction_is_read_as_it_was_written(value: TransactionLogValue | None) -> None:
    data = None if value is None else encode_value(value)
    assert decode_record(encode_key(KEY), data) == (KEY, value)


def test_a_transaction_of_version_0_is_read() -> None:
    data = bytes.fromhex(
        "0000" "0000000000000001" "0002" "00000003" "00" "ffffffff" "0000000000000004" "ffffffffffffffff"
    )  # fmt: skip
    assert decode_record(encode_key(KEY), data) == (KEY, EMPTY)


def test_a_type_of_a_newer_release_is_ignored() -> None:
    assert decode_record(b"\x00\x01abc", b"") is None


def test_a_truncated_transaction_record_is_corrupt() -> None:
    data = encode_value(ONGOING)
    for size in range(len(data)):
        with pytest.raises(KafkaError) as rejected:
            decode_record(encode_key(KEY), data[:size])
        assert rejected.value.code is ErrorCode.corrupt_message


@given(st.from_type(TransactionLogKey), st.from_type(TransactionLogValue))
def test_the_encoding_has_the_bytes_of_kio(key: TransactionLogKey, value: TransactionLogValue) -> None:
    assert encode_key(key) == coordinator_codec.encode_key(key)
    assert encode_value(value) == coordinator_codec.encode_value(value, value.__version__)
