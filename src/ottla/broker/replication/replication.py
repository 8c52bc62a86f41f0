"""Connects the hosted partitions with replication: fetchers for those that this broker follows, ISRs of the others."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_host import PartitionHost
from ottla.core.partition.follower import PartitionFollower
from ottla.core.partition.leader import PartitionLeader
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.protocol.metadata_records.records import NO_LEADER

if TYPE_CHECKING:
    from ottla.broker.active_controller import ActiveController
    from ottla.broker.background_tasks import BackgroundTasks
    from ottla.broker.replication.isr_changes import IsrChanges
    from ottla.broker.replication.replica_fetchers import ReplicaFetchers
    from ottla.core.replication_throttle import ReplicationThrottle
    from ottla.rpc.node_connections import NodeConnections

logger = logging.getLogger("ottla.replication")

_CHECKED_AT_ONCE = 1_000  # partitions, in one turn of the event loop


def load_modules() -> None:
    """Imports what a broker needs when it meets others, which takes 0.2 s. For a thread, before the broker serves."""
    import ottla.broker.controller_requests
    import ottla.broker.replication.isr_changes
    import ottla.broker.replication.leader_offsets
    import ottla.broker.replication.replica_fetchers  # noqa: F401


class Replication:
    """Loads its parts, with the messages of the protocol, when there is a first replica on another broker."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        partitions: PartitionHost,
        tasks: "BackgroundTasks",
        throttle: "ReplicationThrottle",
        *,
        connect: Callable[[], "NodeConnections"],
        new_controller_client: Callable[[], "ActiveController"],
        broker_epoch: Callable[[], int],
    ) -> None:
        self._env = env
        self._config = config
        self._partitions = partitions
        self._tasks = tasks
        self._throttle = throttle
        self._connect = connect
        self._new_controller_client = new_controller_client
        self._broker_epoch = broker_epoch
        self._fetchers: ReplicaFetchers | None = None
        self._isr_changes: IsrChanges | None = None
        self._check: asyncio.Task[None] | None = None
        partitions.on_role_changed = self._role_changed
        partitions.on_isr_proposed = self._isr_proposed

    async def close(self) -> None:
        if self._check is not None:
            self._check.cancel()
            await asyncio.gather(self._check, return_exceptions=True)
        if self._fetchers is not None:
            await self._fetchers.close()

    def _role_changed(self, hosted: HostedPartition) -> None:
        role = hosted.role
        if self._fetchers is None and isinstance(role, PartitionFollower) and role.leader_id != NO_LEADER:
            from ottla.broker.replication.replica_fetchers import ReplicaFetchers

            self._fetchers = ReplicaFetchers(
                self._env, self._config, self._throttle, self._connect, self._broker_epoch
            )
        if self._fetchers is not None:
            self._fetchers.role_changed(hosted)
        # Also for a leader without followers: a reassignment may add one within the leader epoch.
        if self._check is None and isinstance(role, PartitionLeader):
            self._check = asyncio.get_running_loop().create_task(self._check_isrs(), name="ISR check")

    def _isr_proposed(self, hosted: HostedPartition, leader: PartitionLeader, isr: tuple[int, ...]) -> None:
        if self._isr_changes is None:
            from ottla.broker.replication.isr_changes import IsrChanges

            self._isr_changes = IsrChanges(
                self._env,
                self._new_controller_client(),
                self._tasks,
                local_id=self._config.node_id,
                broker_epoch=self._broker_epoch,
            )
        self._isr_changes.propose(hosted, leader, isr)

    async def _check_isrs(self) -> None:
        """As in Kafka, twice per replica.lag.time.max.ms."""
        while True:
            await asyncio.sleep(self._config.get_int("replica.lag.time.max.ms") / 2000)
            for number, hosted in enumerate(list(self._partitions), 1):
                if number % _CHECKED_AT_ONCE == 0:
                    await asyncio.sleep(0)
                try:
                    if not hosted.is_closed:
                        hosted.check_isr(self._env.clock.monotonic_ms())
                except Exception:  # a bug in one partition must not keep the others from their check
                    logger.exception("the ISR of %s cannot be checked", hosted.topic_partition)
