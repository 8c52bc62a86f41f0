"""A client of a simulated cluster: it finds the leaders of partitions and the coordinators, as Kafka's clients do.

It has the methods of `SimClient`, so that the clients of the other workloads can use it. It sends each request once.
After an error that says that a leader or a coordinator has moved, or after a network failure, it looks for them again
with the next request.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any
from uuid import UUID

from kio.schema.fetch.v17.request import FetchPartition, FetchRequest
from kio.schema.fetch.v17.response import FetchResponse
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic

from ottla.env.network import Network
from ottla.model.errors import ErrorCode
from ottla.records.header import HEADER_SIZE, read_header
from ottla.sim.client import SimClient
from ottla.sim.env import World
from ottla.sim.history import Violation
from ottla.sim.node import HOST, PORT

Address = tuple[str, int]
_GROUP, _TRANSACTION = 0, 1
_CoordinatorKey = tuple[int, str]
_NONE = -1
# After these errors the leader or coordinator may be another broker.
_MOVED = frozenset(
    {
        ErrorCode.not_leader_or_follower,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.leader_not_available,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.kafka_storage_error,
        ErrorCode.not_coordinator,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_controller,
        ErrorCode.request_timed_out,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
    }
)


class NoLeader(ConnectionError):
    """The partition has no leader now, or the coordinator is not known."""


class ClusterClient(SimClient):
    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        client_id: str,
        random: Random,
        timeout_s: float = 10.0,
        *,
        resets_on_timeout: bool = False,
        reconnect_backoff_s_max: float = 0.0,
    ) -> None:
        super().__init__(
            network,
            bootstrap[0],
            client_id,
            timeout_s,
            resets_on_timeout=resets_on_timeout,
            reconnect_backoff_s_max=reconnect_backoff_s_max,
        )
        self._bootstrap = bootstrap
        self._random = random
        self._any: Address = random.choice(bootstrap)
        self._clients: dict[Address, SimClient] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[tuple[str | UUID, int], tuple[int, int]] = {}  # broker, leader epoch
        self._epochs: dict[tuple[str | UUID, int], int] = {}  # the newest leader epoch seen
        self._coordinators: dict[_CoordinatorKey, Address] = {}
        self._looking_up = asyncio.Lock()
        # KIP-392: with a rack, consumers fetch from the followers that leaders name.
        self.rack = ""
        self._followers: dict[tuple[str | UUID, int], int] = {}

    async def request(self, message: Any, timeout_s: float | None = None) -> Any:
        address, message = await self._route(message)
        # Another request of this client may make it forget the follower before the response comes.
        is_for_follower = bool(self.rack) and _partition_of(message) in self._followers
        try:
            response = await self.client_of(address).request(message, timeout_s)
        except OSError:
            self._forget(message, address)
            raise
        if _MOVED & error_codes(response):
            self._forget(message, address)
        if isinstance(message, FetchRequest):
            _check_epochs(message, response)
            self._choose_replica(message, response, is_for_follower=is_for_follower)
        return response

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def client_of(self, address: Address) -> SimClient:
        """The client of one broker."""
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = SimClient(
                self._network,
                address,
                self._client_id,
                self._timeout_s,
                resets_on_timeout=self._resets_on_timeout,
                reconnect_backoff_s_max=self._reconnect_backoff_s_max,
            )
        return client

    def see_leader_epoch(self, topic_id: UUID, partition: int, leader_epoch: int) -> None:
        """Leaders of earlier epochs get no requests any more, as in Kafka's clients (KIP-320)."""
        key = (topic_id, partition)
        if leader_epoch > self._epochs.get(key, _NONE):
            self._epochs[key] = leader_epoch
            self._leaders.pop(key, None)
            self._followers.pop(key, None)

    # Where requests go

    async def _route(self, message: Any) -> tuple[Address, Any]:
        """The broker for a request, and the request, which may get the leader epoch."""
        if (partition := _partition_of(message)) is not None:
            broker_id, epoch = await self._leader(*partition)
            if isinstance(message, FetchRequest):
                message = _with_epoch(message, epoch, self.rack)
                broker_id = self._followers.get(partition, broker_id) if self.rack else broker_id
            if broker_id not in self._brokers:
                del self._followers[partition]
                raise NoLeader(f"{partition} has no such replica any more")
            return self._brokers[broker_id], message
        if (key := _coordinator_key(message)) is not None:
            return await self._coordinator(key), message
        return self._any, message

    def _forget(self, message: Any, address: Address) -> None:
        if (partition := _partition_of(message)) is not None:
            self._leaders.pop(partition, None)
            self._followers.pop(partition, None)
        elif (key := _coordinator_key(message)) is not None:
            self._coordinators.pop(key, None)
        if address == self._any:
            self._any = self._random.choice(self._bootstrap)

    def _choose_replica(
        self, message: FetchRequest, response: FetchResponse, *, is_for_follower: bool
    ) -> None:
        """Raises NoLeader if a follower does not have the offset: as Kafka's consumer, it asks the leader next."""
        partition = _partition_of(message)
        if partition is None or not response.responses:
            return
        found = response.responses[0].partitions[0]
        if found.error_code == ErrorCode.offset_out_of_range and is_for_follower:
            self._followers.pop(partition, None)
            raise NoLeader(f"a follower of {partition} does not have the offset")
        if self.rack and found.preferred_read_replica != _NONE:
            self._followers[partition] = found.preferred_read_replica

    async def _leader(self, topic: str | UUID, partition: int) -> tuple[int, int]:
        async with self._looking_up:
            if (topic, partition) not in self._leaders:
                await self._refresh(topic)
        found = self._leaders.get((topic, partition))
        if found is None or found[0] not in self._brokers:
            self._leaders.pop((topic, partition), None)
            self._any = self._random.choice(self._bootstrap)  # the metadata of this broker may be old
            raise NoLeader(f"{topic}-{partition} has no leader")
        return found

    async def _refresh(self, topic: str | UUID) -> None:
        is_id = isinstance(topic, UUID)
        wanted = MetadataRequestTopic(topic_id=topic if is_id else None, name=None if is_id else topic)  # type: ignore[arg-type]
        request = MetadataRequest(
            topics=(wanted,), allow_auto_topic_creation=False, include_topic_authorized_operations=False
        )
        response = await self.request(request)
        self._brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        for found in response.topics:
            for partition in found.partitions:
                if partition.leader_id != _NONE:
                    leader = (partition.leader_id, partition.leader_epoch)
                    for name in (found.name, found.topic_id):
                        key = (name, partition.partition_index)
                        # KIP-320: a broker that was paused may still name, or be, a former leader.
                        if partition.leader_epoch >= self._epochs.get(key, _NONE):
                            self._epochs[key] = partition.leader_epoch
                            self._leaders[key] = leader

    async def _coordinator(self, key: _CoordinatorKey) -> Address:
        async with self._looking_up:
            if key not in self._coordinators:
                request = FindCoordinatorRequest(key_type=key[0], coordinator_keys=(key[1],))
                found = (await self.request(request)).coordinators[0]
                if found.error_code != ErrorCode.none:
                    raise NoLeader(f"the coordinator of {key[1]} is not known: {found.error_code.name}")
                self._coordinators[key] = (found.host, found.port)
            return self._coordinators[key]


def new_client(
    world: World, host: str, name: str, timeout_s: float = 10.0, *, resets_on_timeout: bool = False
) -> SimClient:
    """A client on `host` of the world's cluster, or of its single broker."""
    network = world.network.host(host)
    if not world.bootstrap:
        return SimClient(network, (HOST, PORT), name, timeout_s, resets_on_timeout=resets_on_timeout)
    return ClusterClient(
        network,
        world.bootstrap,
        name,
        world.derive(),
        timeout_s,
        resets_on_timeout=resets_on_timeout,
        reconnect_backoff_s_max=world.reconnect_backoff_s_max,
    )


def error_codes(response: Any) -> set[ErrorCode]:
    """All error codes in a response."""
    codes: set[ErrorCode] = set()
    waiting = [response]
    while waiting:
        message = waiting.pop()
        for name in _field_names(type(message)):
            value = getattr(message, name)
            if isinstance(value, ErrorCode):
                codes.add(value)
            elif isinstance(value, tuple):
                waiting += [item for item in value if _field_names(type(item))]
            elif _field_names(type(value)):
                waiting.append(value)
    return codes


_FIELD_NAMES: dict[Any, tuple[str, ...]] = {}


def _field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a message; empty for all other types."""
    names = _FIELD_NAMES.get(kind)
    if names is None:
        names = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()
        _FIELD_NAMES[kind] = names
    return names


def _partition_of(message: Any) -> tuple[str | UUID, int] | None:
    """The partition of a request that its leader serves; the clients send one partition at a time."""
    kind = type(message).__name__
    if kind == "ProduceRequest":
        topic = message.topic_data[0]
        return getattr(topic, "topic_id", None) or topic.name, topic.partition_data[0].index
    if kind == "FetchRequest":
        return message.topics[0].topic_id, message.topics[0].partitions[0].partition
    if kind == "DeleteRecordsRequest":
        return message.topics[0].name, message.topics[0].partitions[0].partition_index
    return None


def _with_epoch(message: FetchRequest, epoch: int, rack: str) -> FetchRequest:
    """KIP-320: a consumer sends the leader epoch that it knows."""
    topic = message.topics[0]
    partition: FetchPartition = replace(topic.partitions[0], current_leader_epoch=epoch)
    return replace(message, topics=(replace(topic, partitions=(partition,)),), rack_id=rack)


def _check_epochs(message: FetchRequest, response: FetchResponse) -> None:
    """KIP-320: a broker that knows a newer leader epoch must reject the fetch, and not return records of that epoch."""
    epoch = message.topics[0].partitions[0].current_leader_epoch
    for topic in response.responses:
        for partition in topic.partitions:
            data, position = partition.records or b"", 0
            while len(data) - position >= HEADER_SIZE:
                header = read_header(data, position)
                if header.partition_leader_epoch > epoch >= 0:
                    raise Violation(
                        f"leader epoch: a fetch for epoch {epoch} got offset {header.base_offset} of epoch "
                        f"{header.partition_leader_epoch}"
                    )
                position += header.size


def _coordinator_key(message: Any) -> _CoordinatorKey | None:
    kind = type(message).__name__
    if kind == "FindCoordinatorRequest":
        return None
    if kind in ("InitProducerIdRequest", "AddOffsetsToTxnRequest", "EndTxnRequest"):
        return None if message.transactional_id is None else (_TRANSACTION, message.transactional_id)
    if kind == "AddPartitionsToTxnRequest":
        return _TRANSACTION, message.v3_and_below_transactional_id
    if kind == "OffsetFetchRequest":
        return _GROUP, message.groups[0].group_id
    if kind == "DescribeGroupsRequest":
        return _GROUP, message.groups[0]
    if kind == "ConsumerGroupDescribeRequest":
        return _GROUP, message.group_ids[0]
    group_id = getattr(message, "group_id", None)
    return None if group_id is None else (_GROUP, group_id)
