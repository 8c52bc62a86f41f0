"""Replication throttles on simulated brokers (KIP-73): new replicas are copied at the rate, others are not slowed."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch
from ottla.sim.client import SimClient
from ottla.sim.cluster import Cluster
from ottla.sim.cluster_client import new_client
from ottla.sim.env import World, simulate

pytestmark = pytest.mark.slow

BATCH_BYTES = 100_000
BATCHES = 40
RATE = 500_000
# At most this much is in one response, and is sent before the quota counts it.
FETCH_BYTES = 1 << 20


class Copy:
    """A cluster in which `journal` is on broker 1 only."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = Cluster(world, 3, 0)
        world.bootstrap = self.cluster.bootstrap
        self.client: SimClient = new_client(world, "client", "client", 10.0)

    async def start(self) -> None:
        await self.cluster.start()
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=(1,))
        topic = CreatableTopic(
            name="journal", num_partitions=-1, replication_factor=-1, assignments=(assignment,), configs=()
        )
        request = CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        (created,) = (await self.client.request(request)).topics
        assert created.error_code is ErrorCode.none
        self.topic_id = created.topic_id
        for _ in range(BATCHES):
            await self.produce()

    async def produce(self) -> None:
        batch = build_batch([Record(0, self.world.clock.now_ms(), b"k", bytes(BATCH_BYTES))])
        response = await self.client.produce(self.topic_id, 0, batch)
        while response.error_code is not ErrorCode.none:
            await asyncio.sleep(0.1)
            response = await self.client.produce(self.topic_id, 0, batch)

    async def configure(self, kind: ResourceType, name: str, **configs: str | None) -> None:
        changes = tuple(
            AlterableConfig(name=key.replace("_", "."), config_operation=0 if value else 1, value=value)
            for key, value in configs.items()
        )
        resource = AlterConfigsResource(resource_type=int(kind), resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        (result,) = (await self.client.request(request)).responses
        assert result.error_code is ErrorCode.none, result

    async def throttle(self, side: str, rate: int) -> None:
        await self.configure(ResourceType.TOPIC, "journal", **{f"{side}_replication_throttled_replicas": "*"})
        await self.configure(ResourceType.BROKER, "", **{f"{side}_replication_throttled_rate": str(rate)})

    async def reassign(self, *replicas: int) -> None:
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        topic = ReassignableTopic(name="journal", partitions=(partition,))
        request = AlterPartitionReassignmentsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        response = await self.client.request(request)
        assert response.responses[0].partitions[0].error_code is ErrorCode.none

    async def copied_after_s(self) -> float:
        """Reassigns to brokers 1 and 2, and returns the seconds until both are in sync."""
        began_s = asyncio.get_running_loop().time()
        await self.reassign(1, 2)
        await self.wait_for(lambda: set(self.cluster.isr_of("journal", 0)) == {1, 2})
        return asyncio.get_running_loop().time() - began_s

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(120):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)


def in_cluster(check: Callable[[Copy], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        copy = Copy(world)
        await copy.start()
        await check(copy)
        await copy.cluster.kill()

    simulate(main, seed=1)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_new_replica_is_copied_at_the_rate_of_either_side(side: str) -> None:
    async def check(copy: Copy) -> None:
        await copy.throttle(side, RATE)
        took_s = await copy.copied_after_s()
        least_s = (BATCHES * BATCH_BYTES - FETCH_BYTES) / RATE
        assert least_s <= took_s <= 2 * least_s

    in_cluster(check)


def test_without_a_throttle_it_takes_a_fraction_of_that_time() -> None:
    async def check(copy: Copy) -> None:
        assert await copy.copied_after_s() < 1

    in_cluster(check)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttle_that_is_removed_lets_the_copy_go_on_at_once(side: str) -> None:
    async def check(copy: Copy) -> None:
        await copy.throttle(side, 10_000)
        await copy.reassign(1, 2)
        await asyncio.sleep(30)
        assert copy.cluster.isr_of("journal", 0) == (1,)
        await copy.configure(ResourceType.BROKER, "", **{f"{side}_replication_throttled_rate": None})
        removed_s = asyncio.get_running_loop().time()
        await copy.wait_for(lambda: set(copy.cluster.isr_of("journal", 0)) == {1, 2})
        assert asyncio.get_running_loop().time() - removed_s < 3

    in_cluster(check)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_in_sync_are_not_throttled(side: str) -> None:
    async def check(copy: Copy) -> None:
        await copy.copied_after_s()
        await copy.throttle(side, 1)
        began_s = asyncio.get_running_loop().time()
        for _ in range(10):  # acknowledged by both replicas
            await copy.produce()
        assert asyncio.get_running_loop().time() - began_s < 3
        assert set(copy.cluster.isr_of("journal", 0)) == {1, 2}

    in_cluster(check)
