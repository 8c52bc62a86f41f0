"""Our reader of client messages agrees with kio's, and survives input that kio's does not."""

from io import BytesIO

import pytest
from hypothesis import HealthCheck, given, reject
from hypothesis import strategies as st
from kio.index import load_request_schema
from kio.serial import entity_reader as kio_reader
from kio.serial import entity_writer
from tests.examples import examples

from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.messages import decode_request
from ottla.protocol.primitives import ELEMENTS_MAX
from ottla.protocol.varint import encode_uvarint


@pytest.mark.parametrize("key", [key for key in APIS if key is not ApiKey.PRODUCE], ids=lambda key: key.name)
@examples(12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_version_reads_as_kio_reads_it(key: ApiKey, data: st.DataObject) -> None:
    version = data.draw(st.integers(APIS[key].min_version, APIS[key].max_version))
    schema = load_request_schema(key, version)
    message = data.draw(st.from_type(schema))
    buffer = BytesIO()
    try:
        entity_writer(schema)(buffer, message)
        expected = kio_reader(schema)(buffer.getvalue(), 0)
    except (OverflowError, ValueError):  # kio draws durations that it can neither write nor read
        reject()
    assert entity_reader(schema)(memoryview(buffer.getvalue()), 0) == expected


def test_an_array_with_a_wrong_length_is_malformed_and_allocates_nothing() -> None:
    schema = load_request_schema(ApiKey.DELETE_RECORDS, 2)
    with pytest.raises(MalformedRequest, match="claims"):
        entity_reader(schema)(memoryview(b"\xff\xff\xff\xff\x07"), 0)


def test_unknown_tagged_fields_are_skipped() -> None:
    schema = load_request_schema(ApiKey.DESCRIBE_CLUSTER, 1)
    message, end = entity_reader(schema)(memoryview(bytes([1, 2, 1, 99, 3]) + b"abc"), 0)
    assert end == 8
    assert message.include_cluster_authorized_operations is True


def test_a_string_longer_than_the_limit_of_older_versions_is_malformed() -> None:
    schema = load_request_schema(ApiKey.DELETE_TOPICS, 5)
    body = b"\x02" + b"\x81\x80\x02" + b"t" * 0x8000 + b"\x00\x00\x00\x01\x00"
    with pytest.raises(MalformedRequest, match="a string has 32768 bytes"):
        entity_reader(schema)(memoryview(body), 0)


def test_a_request_with_too_many_elements_is_rejected_before_they_are_read() -> None:
    names = b"\x01" * (ELEMENTS_MAX + 1)
    too_many = encode_uvarint(ELEMENTS_MAX + 2) + names + b"\0\0"
    enough = encode_uvarint(ELEMENTS_MAX + 1) + names[1:] + b"\0\0"
    with pytest.raises(MalformedRequest, match="250001 elements or more, but only 250000 are allowed"):
        decode_request(ApiKey.DESCRIBE_GROUPS, 5, memoryview(too_many))
    assert len(decode_request(ApiKey.DESCRIBE_GROUPS, 5, memoryview(enough))[1].groups) == ELEMENTS_MAX


def test_elements_and_tagged_fields_count_over_the_whole_request() -> None:
    group = b"\x02a" + b"\0" + b"\x02" + b"\x7e\0" + b"\x7f\0"  # no topics, and two unknown fields
    count = ELEMENTS_MAX // 3
    body = encode_uvarint(count + 1) + group * count + b"\0" + b"\x03" + b"\x7d\0\x7e\0\x7f\0"
    with pytest.raises(MalformedRequest, match="split the request"):
        decode_request(ApiKey.OFFSET_FETCH, 8, memoryview(body))
