"""The response with an error exists for every API in every version, and names what its request names."""

from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from kio.index import load_request_schema

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey, ListenerKind, apis_of
from ottla.protocol.messages import encode_response
from ottla.protocol.schema import default_of, entity_in, is_array, kafka_type
from ottla.testing.error_response import error_response

# Their requests name things in another way. The response has the error, but names nothing.
WITHOUT_NAMES = {ApiKey.ALTER_REPLICA_LOG_DIRS, ApiKey.DESCRIBE_LOG_DIRS}
VERSIONS = [
    (api, version)
    for api in apis_of(ListenerKind.BROKER)
    for version in range(APIS[api].min_version, APIS[api].max_version + 1)
]


def request_with_one_of_each(schema: Any) -> Any:
    """A request whose arrays have one element."""
    values = {}
    for field in fields(schema):
        entity = entity_in(field.type)
        if entity is not None:
            inner = request_with_one_of_each(entity)
            values[field.name] = (inner,) if is_array(field.type) else inner
        elif is_array(field.type):
            values[field.name] = ({"string": "x", "uuid": None}.get(kafka_type(field), 7),)
        else:
            values[field.name] = default_of(field)
    return schema(**values)


def errors_in(message: Any) -> list[ErrorCode]:
    found: list[ErrorCode] = []
    for field in fields(message):
        value = getattr(message, field.name)
        for item in value if isinstance(value, tuple) else (value,):
            if is_dataclass(item):
                found += errors_in(item)
            elif isinstance(item, ErrorCode):
                found.append(item)
    return found


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=lambda value: str(getattr(value, "name", value)))
def test_every_api_can_fail(api: ApiKey, version: int):
    request = request_with_one_of_each(load_request_schema(api, version))
    response = error_response(api, version, request, ErrorCode.invalid_request)
    assert encode_response(api, version, response)
    if api not in WITHOUT_NAMES:
        assert ErrorCode.invalid_request in errors_in(response)


def test_a_produce_names_its_partitions():
    schema: Any = load_request_schema(ApiKey.PRODUCE, 9)
    response = error_response(
        ApiKey.PRODUCE, 9, request_with_one_of_each(schema), ErrorCode.not_leader_or_follower
    )
    ((partition,),) = (topic.partition_responses for topic in response.responses)
    assert partition.error_code is ErrorCode.not_leader_or_follower
