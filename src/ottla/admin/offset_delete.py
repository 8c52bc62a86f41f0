"""Deletes committed offsets of a group (OffsetDelete, KIP-496), which confluent-kafka has no call for.

One request on a connection of its own to the group's coordinator.
"""

import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable
from io import BytesIO
from typing import NamedTuple

from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.types import GroupId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from ottla.admin.cluster import REQUEST_TIMEOUT_S, Cluster, ClusterError, UnreachableError
from ottla.admin.group_offsets import TopicScope, committed_offsets
from ottla.admin.groups import Coordinator, describe_groups
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

_CLIENT_ID = b"ottla"
_CORRELATION_ID = 1
_REFUSALS = {
    ErrorCode.group_subscribed_to_topic: "a member of the group is subscribed to the topic. Stop it first",
    ErrorCode.non_empty_group: "the group has members. Stop its consumers first",
    ErrorCode.unknown_topic_or_partition: "no such topic or partition. See: ottla topics list",
    ErrorCode.group_id_not_found: "there is no such group. See: ottla groups list",
}


class DeletedOffset(NamedTuple):
    topic: str
    partition: int
    # Why the offset is still there; None where it is deleted.
    error: str | None


def delete_offsets(cluster: Cluster, group: str, scopes: Collection[TopicScope]) -> list[DeletedOffset]:
    """Sorted. Raises ClusterError where there is no such group, or it has no offset of one of the topics."""
    (described,) = describe_groups(cluster, [group])
    committed = committed_offsets(cluster, group)
    for scope in scopes:
        if not any(scope.covers(partition) for partition in committed):
            raise ClusterError(
                f"Group {group} has no committed offset of {scope}. See: ottla groups offsets {group}"
            )
    chosen = [partition for partition in committed if any(scope.covers(partition) for scope in scopes)]
    try:
        response = _ask(described.coordinator, _request(group, chosen))
    except OSError as error:
        raise UnreachableError(
            f"Offsets of group {group}: its coordinator {described.coordinator} does not answer ({error})"
        ) from None
    if response.error_code is not ErrorCode.none:
        raise ClusterError(f"Offsets of group {group} were not deleted: {_reason(response.error_code)}")
    return sorted(
        DeletedOffset(
            topic.name,
            line.partition_index,
            None if line.error_code is ErrorCode.none else _reason(line.error_code),
        )
        for topic in response.topics
        for line in topic.partitions
    )


def _request(group: str, partitions: Iterable[TopicPartition]) -> OffsetDeleteRequest:
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
    for topic, number in sorted(partitions):
        by_topic[topic].append(OffsetDeleteRequestPartition(partition_index=i32(number)))
    topics = (
        OffsetDeleteRequestTopic(name=TopicName(topic), partitions=tuple(numbers))
        for topic, numbers in by_topic.items()
    )
    return OffsetDeleteRequest(group_id=GroupId(group), topics=tuple(topics))


def _reason(code: ErrorCode) -> str:
    return _REFUSALS.get(code, f"the coordinator answered {code.name.upper()}. Try again")


def _ask(coordinator: Coordinator, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    body = BytesIO()
    entity_writer(OffsetDeleteRequest)(body, request)
    header = struct.pack(">hhih", request.__api_key__, request.__version__, _CORRELATION_ID, len(_CLIENT_ID))
    payload = header + _CLIENT_ID + body.getvalue()
    address = (coordinator.host, coordinator.port)
    with socket.create_connection(address, timeout=REQUEST_TIMEOUT_S) as connection:
        connection.sendall(struct.pack(">i", len(payload)) + payload)
        with connection.makefile("rb") as stream:
            (length,) = struct.unpack(">i", _read(stream.read(4), 4))
            answer = _read(stream.read(length), length)
    response, _ = entity_reader(OffsetDeleteResponse)(memoryview(answer), 4)
    return response


def _read(data: bytes, count: int) -> bytes:
    if len(data) < count:
        raise ConnectionError("it closed the connection")
    return data
