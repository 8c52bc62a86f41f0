"""Builds the response to a request with an error in every place for which the API has one.

A response repeats the topics, partitions, groups and other names of its request, mostly in fields of the same name. So
it is built by comparing the messages of both, instead of by a function for each API. Request and response are kio's
messages in the version that the client sent.
"""

from dataclasses import Field, fields, is_dataclass, replace
from functools import cache
from typing import Any

from kio.index import load_response_schema

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.schema import default_of, entity_in, is_array, kafka_type

# Fields of responses, with their other names in requests.
_NAMES: dict[str, tuple[str, ...]] = {
    "responses": ("topic_data", "topics", "topic_names", "resources"),
    "results": ("topics", "resources", "groups_names", "partitions"),
    "results_by_topic_v3_and_below": ("v3_and_below_topics",),
    "results_by_transaction": ("transactions",),
    "topic_results": ("topics",),
    "results_by_partition": ("partitions",),
    "partition_responses": ("partition_data",),
    "partitions": ("partition_indexes",),
    "partition_index": ("partition",),
    "coordinators": ("coordinator_keys",),
    "groups": ("group_ids",),
    "replica_election_results": ("topic_partitions",),
    "partition_result": ("partitions",),
    "transaction_states": ("transactional_ids",),
}
# The fields that take an element of a plain array, such as the names of groups.
_PLAIN = ("partition_index", "partition_id", "key", "group_id", "name", "transactional_id")


def error_response(api: ApiKey, version: int, request: Any, error: ErrorCode) -> Any:
    """A Fetch has the error on its partitions only: one of the whole response is an error of the fetch session."""
    schema: Any = load_response_schema(api, version)
    response = _build(schema, request, error)
    if api is ApiKey.FETCH and hasattr(response, "error_code"):
        return replace(response, error_code=ErrorCode.none, session_id=0)
    return response


def _build(schema: Any, source: Any, error: ErrorCode) -> Any:
    return schema(**{field.name: _value(field, source, error) for field in fields(schema)})


def _value(field: "Field[Any]", source: Any, error: ErrorCode) -> Any:
    entity = entity_in(field.type)
    if entity is not None:
        if not is_array(field.type) or not _has_errors(entity):
            return default_of(field)
        return tuple(_build(entity, item, error) for item in _find(field.name, source) or ())
    if kafka_type(field) == "error_code":
        return error
    if is_array(field.type):
        return default_of(field)
    value = _find(field.name, source) if is_dataclass(source) else source
    if not is_dataclass(source) and field.name not in _PLAIN:
        value = None
    default = default_of(field)
    fits = value is not None and (default is None or isinstance(value, type(default)))
    return value if fits else default


def _find(name: str, source: Any) -> Any:
    """The value of a field of the request that has this name, or another name for the same."""
    names = (name, *_NAMES.get(name, ()))
    return next((value for each in names if (value := getattr(source, each, None)) is not None), None)


@cache
def _has_errors(entity: Any) -> bool:
    for field in fields(entity):
        inner = entity_in(field.type)
        if _has_errors(inner) if inner is not None else kafka_type(field) == "error_code":
            return True
    return False
