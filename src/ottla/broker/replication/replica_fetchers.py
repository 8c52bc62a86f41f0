"""Assigns the partitions that this broker follows to fetchers: `num.replica.fetchers` for each leading broker."""

import asyncio
from collections.abc import Callable

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.replication.replica_fetcher import FetcherSettings, ReplicaFetcher
from ottla.core.partition.follower import PartitionFollower
from ottla.core.replication_throttle import ReplicationThrottle
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.ids import TopicPartition
from ottla.protocol.metadata_records.records import NO_LEADER
from ottla.records.checksum import crc32c
from ottla.rpc.node_connections import NodeConnections

_FetcherKey = tuple[int, int]  # source broker, number of the fetcher


class ReplicaFetchers:
    """`connect` returns new connections: each fetcher waits on its own, as a broker serves one request at a time."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        throttle: ReplicationThrottle,
        connect: Callable[[], NodeConnections],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._config = config
        self._throttle = throttle
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._fetchers: dict[_FetcherKey, ReplicaFetcher] = {}
        self._connections: dict[_FetcherKey, NodeConnections] = {}
        self._assigned: dict[TopicPartition, _FetcherKey] = {}
        self._is_closed = False

    def role_changed(self, hosted: HostedPartition) -> None:
        """The partition has another leader, or leader epoch, or is gone from this broker."""
        topic_partition, role = hosted.topic_partition, hosted.role
        source = NO_LEADER
        if isinstance(role, PartitionFollower) and not hosted.is_closed and hosted.failure is None:
            source = role.leader_id
        key = (source, self._fetcher_number(topic_partition))
        before = self._assigned.pop(topic_partition, None)
        if before is not None and before != key:
            self._fetchers[before].remove(hosted.topic_id, topic_partition.partition)
        if source != NO_LEADER and not self._is_closed:
            assert isinstance(role, PartitionFollower)
            self._assigned[topic_partition] = key
            self._fetcher(key).add(hosted, role)

    def _fetcher_number(self, topic_partition: TopicPartition) -> int:
        count = self._config.get_int("num.replica.fetchers")
        return (
            (crc32c(topic_partition.topic.encode()) + topic_partition.partition) % count if count > 1 else 0
        )

    def _fetcher(self, key: _FetcherKey) -> ReplicaFetcher:
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            self._connections[key] = self._connect()
            fetcher = self._fetchers[key] = ReplicaFetcher(
                self._env,
                self._connections[key],
                FetcherSettings.from_config(self._config),
                self._throttle,
                local_id=self._config.node_id,
                source_id=key[0],
                broker_epoch=self._broker_epoch,
            )
        return fetcher

    async def close(self) -> None:
        self._is_closed = True
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers.values()))
        for connections in self._connections.values():
            connections.close()
