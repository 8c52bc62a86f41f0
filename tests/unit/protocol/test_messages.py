"""Requests of every version are converted to the newest, and responses of the newest to every version."""

from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.metadata.v13.response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.serial import entity_reader, entity_writer
from tests.examples import examples

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.messages import converter, decode_request, encode_response, has_many_elements
from ottla.protocol.schema import default_of

VERSIONS = [
    (key, version) for key, spec in APIS.items() for version in range(spec.min_version, spec.max_version + 1)
]


def blank(schema: type) -> Any:
    from dataclasses import fields

    return schema(**{field.name: default_of(field) for field in fields(schema)})


def written(message: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda value: str(value))
def test_a_request_of_any_version_is_converted_to_the_newest(key: ApiKey, version: int) -> None:
    request = blank(load_request_schema(key, version))
    as_sent, newest = decode_request(key, version, memoryview(written(request)))
    assert as_sent == request
    assert type(newest) is load_request_schema(key, APIS[key].max_version)


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda value: str(value))
def test_a_response_of_the_newest_version_is_converted_to_any_version(key: ApiKey, version: int) -> None:
    newest = blank(load_response_schema(key, APIS[key].max_version))
    body = encode_response(key, version, newest)
    message, size = entity_reader(load_response_schema(key, version))(body, 0)
    assert size == len(body)
    old_type: Any = type(message)
    new_type: Any = type(newest)
    assert message == converter(new_type, old_type)(newest)


@pytest.mark.parametrize(("key", "version"), VERSIONS, ids=lambda value: str(value))
def test_flexible_versions_are_those_of_the_schema(key: ApiKey, version: int) -> None:
    assert load_request_schema(key, version).__flexible__ == (version >= APIS[key].first_flexible)


@pytest.mark.parametrize("key", list(APIS), ids=lambda key: key.name)
@examples(30)
@given(data=st.binary(max_size=200))
def test_any_body_is_a_request_or_malformed(key: ApiKey, data: bytes) -> None:
    for version in (APIS[key].min_version, APIS[key].max_version):
        try:
            decode_request(key, version, memoryview(data))
        except MalformedRequest:
            pass


def test_the_elements_of_a_response_are_counted_up_to_the_limit() -> None:
    def metadata(topics: int, partitions: int) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=ErrorCode.none, partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=(1, 2),
            isr_nodes=(1,), offline_replicas=(),
        )  # fmt: skip
        topic = MetadataResponseTopic(
            error_code=ErrorCode.none, name="t", topic_id=None, is_internal=False,
            partitions=(partition,) * partitions,
        )  # fmt: skip
        return MetadataResponse(
            throttle_time=timedelta(), brokers=(), cluster_id="c", controller_id=1, topics=(topic,) * topics,
            error_code=ErrorCode.none,
        )  # fmt: skip

    assert not has_many_elements(metadata(0, 0), 0)
    assert has_many_elements(metadata(11, 0), 10)
    assert not has_many_elements(metadata(2, 3), 2 + 2 * 3 * 4)
    assert has_many_elements(metadata(2, 3), 2 + 2 * 3 * 4 - 1)
    beat = ConsumerGroupHeartbeatResponse(
        throttle_time=timedelta(), error_code=ErrorCode.none, member_epoch=1, heartbeat_interval=timedelta(),
        assignment=Assignment(topic_partitions=(TopicPartitions(topic_id=UUID(int=1), partitions=(0, 1, 2)),)),
    )  # fmt: skip
    assert has_many_elements(beat, 4)
    assert not has_many_elements(beat, 5)
