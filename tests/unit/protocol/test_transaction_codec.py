"""Our codecs of AddPartitionsToTxn and EndTxn agree with kio's in every version; malformed messages are rejected."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from tests.unit.protocol.kio_oracle import MESSAGES, MUTATIONS, kio_bytes, mutations

from ottla.model.ids import TopicPartition
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.transaction_codec import (
    EndTxnRequest,
    PartitionsOfTransaction,
    decode_add_partitions_request,
    decode_end_txn_request,
    encode_add_partitions_response,
    encode_end_txn_response,
)

ADD = ApiKey.ADD_PARTITIONS_TO_TXN
VERSIONS = range(6)


def test_all_versions_are_tested() -> None:
    assert {(APIS[key].min_version, APIS[key].max_version) for key in (ADD, ApiKey.END_TXN)} == {(0, 5)}


def partitions_of(transactional_id: str, producer: tuple[int, int, bool], topics: Any) -> Any:
    """From (name, indexes) of each topic."""
    return PartitionsOfTransaction(
        transactional_id,
        *producer,
        [(name, tuple(indexes)) for name, indexes in topics],
        tuple(TopicPartition(name, index) for name, indexes in topics for index in indexes),
    )


def our_request(message: Any, version: int) -> list[PartitionsOfTransaction]:
    if version < 4:
        producer = (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch, False)
        topics = [(topic.name, topic.partitions) for topic in message.v3_and_below_topics]
        return [partitions_of(message.v3_and_below_transactional_id, producer, topics)]
    return [
        partitions_of(
            each.transactional_id,
            (each.producer_id, each.producer_epoch, each.verify_only),
            [(topic.name, topic.partitions) for topic in each.topics],
        )
        for each in message.transactions
    ]


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_partitions_to_add_read_as_kio_wrote_them(version: int, data: st.DataObject) -> None:
    message = data.draw(st.from_type(load_request_schema(ADD, version)))
    request = decode_add_partitions_request(memoryview(kio_bytes(message)), version)
    assert request == our_request(message, version)


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_the_response_to_add_partitions_has_the_bytes_that_kio_writes(
    version: int, data: st.DataObject
) -> None:
    message: Any = data.draw(st.from_type(load_response_schema(ADD, version)))
    object.__setattr__(message, "throttle_time", type(message.throttle_time)())
    if version >= 4:
        object.__setattr__(message, "error_code", type(message.error_code)(0))
        results = [(each.transactional_id, each.topic_results) for each in message.results_by_transaction]
    else:
        results = [("tx", message.results_by_topic_v3_and_below)]
    transactions = [
        partitions_of(
            transactional_id,
            (0, 0, False),
            [(topic.name, [part.partition_index for part in topic.results_by_partition]) for topic in topics],
        )
        for transactional_id, topics in results
    ]
    codes = [
        [part.partition_error_code for topic in topics for part in topic.results_by_partition]
        for _, topics in results
    ]
    assert encode_add_partitions_response(transactions, codes, version) == kio_bytes(message)


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_the_end_of_a_transaction_reads_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(st.from_type(load_request_schema(ApiKey.END_TXN, version)))
    assert decode_end_txn_request(memoryview(kio_bytes(message)), version) == EndTxnRequest(
        message.transactional_id, message.producer_id, message.producer_epoch, message.committed
    )


@pytest.mark.parametrize("version", VERSIONS)
@MESSAGES
@given(data=st.data())
def test_the_response_to_end_txn_has_the_bytes_that_kio_writes(version: int, data: st.DataObject) -> None:
    message: Any = data.draw(st.from_type(load_response_schema(ApiKey.END_TXN, version)))
    object.__setattr__(message, "throttle_time", type(message.throttle_time)())
    producer = getattr(message, "producer_id", -1), getattr(message, "producer_epoch", -1)
    assert encode_end_txn_response(message.error_code, *producer, version) == kio_bytes(message)


@pytest.mark.parametrize("version", [0, 3, 5])
@pytest.mark.parametrize(
    ("key", "decode"), [(ADD, decode_add_partitions_request), (ApiKey.END_TXN, decode_end_txn_request)]
)
@MUTATIONS
@given(data=st.data())
def test_a_damaged_request_is_malformed_or_another_request(
    version: int, key: ApiKey, decode: Any, data: st.DataObject
) -> None:
    schema: Any = load_request_schema(key, version)
    body = data.draw(mutations(kio_bytes(data.draw(st.from_type(schema)))))
    with suppress(MalformedRequest):
        assert decode(body, version) is not None


def test_a_transactional_id_that_is_too_long_for_a_record_is_malformed() -> None:
    schema: Any = load_request_schema(ApiKey.END_TXN, 5)
    for length, is_read in ((16_383, True), (16_384, False)):
        name = "é" * length
        message = schema(transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
        body = memoryview(kio_bytes(message))
        if is_read:
            assert decode_end_txn_request(body, 5).transactional_id == name
        else:
            with pytest.raises(MalformedRequest, match="more than 32767 bytes"):
                decode_end_txn_request(body, 5)


def test_an_array_that_claims_more_partitions_than_there_are_bytes_is_malformed() -> None:
    body = bytes.fromhex("00027478" + "00" * 10 + "00000001" + "000174" + "0000ffff")
    with pytest.raises(MalformedRequest, match="claims 65535 partitions"):
        decode_add_partitions_request(memoryview(body), 0)
