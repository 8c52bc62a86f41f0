"""Splits a request by partitions, for faults of single partitions: some fail, and the broker serves the rest."""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

from ottla.protocol.api_keys import ApiKey


class _Names(NamedTuple):
    """The fields of a request and its response that have the topics, and that of a request's topic with partitions."""

    topics: str
    partitions: str
    response_topics: str


_APIS = {
    ApiKey.PRODUCE: _Names("topic_data", "partition_data", "responses"),
    ApiKey.FETCH: _Names("topics", "partitions", "responses"),
    ApiKey.LIST_OFFSETS: _Names("topics", "partitions", "topics"),
    ApiKey.OFFSET_COMMIT: _Names("topics", "partitions", "topics"),
    ApiKey.DELETE_RECORDS: _Names("topics", "partitions", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _Names("topics", "partitions", "topics"),
    ApiKey.TXN_OFFSET_COMMIT: _Names("topics", "partitions", "topics"),
}
SPLIT_APIS = tuple(_APIS)


def split_request(
    api: ApiKey, request: Any, is_chosen: Callable[[Any, int], bool]
) -> tuple[Any | None, Any | None]:
    """The request for the chosen partitions and that for the others; None for one without partitions.

    `is_chosen` gets a topic of the request and the number of a partition.
    """
    names = _APIS[api]
    chosen, others = [], []
    for topic in getattr(request, names.topics):
        partitions = getattr(topic, names.partitions)
        first = tuple(each for each in partitions if is_chosen(topic, _number(each)))
        rest = tuple(each for each in partitions if not is_chosen(topic, _number(each)))
        if first:
            chosen.append(replace(topic, **{names.partitions: first}))
        if rest:
            others.append(replace(topic, **{names.partitions: rest}))
    if api is ApiKey.FETCH and hasattr(request, "session_id"):
        # A fetch session would have the rest only, while the client believes that it has all partitions.
        request = replace(request, session_id=0, session_epoch=-1)
    return (
        replace(request, **{names.topics: tuple(chosen)}) if chosen else None,
        replace(request, **{names.topics: tuple(others)}) if others else None,
    )


def merge_responses(api: ApiKey, response: Any, added: Any) -> Any:
    """`response` with the topics of `added`."""
    name = _APIS[api].response_topics
    return replace(response, **{name: getattr(response, name) + getattr(added, name)})


def _number(partition: Any) -> int:
    for name in ("index", "partition", "partition_index"):
        if any(field.name == name for field in fields(partition)):
            return int(getattr(partition, name))
    raise AssertionError(f"{type(partition).__name__} has no number")
