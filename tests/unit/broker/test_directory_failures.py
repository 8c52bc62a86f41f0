"""Brokers with two data directories, of which one fails: the controller elects leaders elsewhere (KIP-858)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic

from ottla.core.controller.image import PartitionImage, is_reserved_directory
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.protocol.metadata_records.records import NO_LEADER
from ottla.records.records import Record, build_batch
from ottla.sim.client import SimClient
from ottla.sim.cluster import PORT, Cluster, ClusterNode
from ottla.sim.env import World, simulate

pytestmark = pytest.mark.slow

ONE, TWO = "/data/one", "/data/two"
CONFIG = {"log.dirs": f"{ONE},{TWO}", "metadata.log.dir": "/data/metadata"}
PARTITIONS = 8


class Disks:
    """A cluster of three. `journal` has 8 partitions, preferably led by node 1, with replicas on all; `alone` has 4,
    on node 1 only.
    """

    def __init__(self, world: World, controllers: int) -> None:
        self.world = world
        self.cluster = Cluster(world, 3, controllers, CONFIG)
        self.node = self.cluster.nodes[1]  # whose disk fails

    async def start(self) -> None:
        await self.cluster.start()
        await self.create("journal", [(1, 2, 3)] * PARTITIONS)
        await self.create("alone", [(1,)] * 4)
        await self.until(lambda: self.are_assigned() and self.are_in_sync())

    async def create(self, name: str, assignment: list[tuple[int, ...]]) -> None:
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=tuple(
                CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                for index, replicas in enumerate(assignment)
            ),
            configs=(),
        )
        request = CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        (result,) = (await self.ask(self.cluster.nodes[2], request)).topics
        assert result.error_code is ErrorCode.none, result.error_message

    async def ask(self, node: ClusterNode, message: Any) -> Any:
        client = SimClient(self.world.network.host("client"), (node.host, PORT), "client", timeout_s=60)
        try:
            return await client.request(message)
        finally:
            client.close()

    async def produce(self, partition: int, *, topic: str = "journal") -> ErrorCode:
        """To the leader, as the metadata names it."""
        leader = self.cluster.nodes[self.cluster.leader_of(topic, partition)]
        client = SimClient(self.world.network.host("client"), (leader.host, PORT), "client", timeout_s=60)
        batch = build_batch([Record(0, self.world.clock.now_ms(), b"key", b"value")])
        try:
            topic_id = self.cluster.image().topics[topic].topic_id
            return (await client.produce(topic_id, partition, batch)).error_code
        finally:
            client.close()

    def partitions(self, topic: str = "journal") -> dict[int, PartitionImage]:
        return dict(self.cluster.image().topics[topic].partitions)

    def real_directory(self, node: ClusterNode, topic: str, index: int) -> UUID | None:
        assert node.broker is not None
        log_dirs = node.broker.services.log_dirs
        return log_dirs.directory_ids.get(log_dirs.directory_of(TopicPartition(topic, index)) or "")

    def in_directory(self, path: str, topic: str = "journal") -> list[int]:
        """The partitions that node 1 has in `path`, as the metadata says."""
        assert self.node.broker is not None
        directory_id = self.node.broker._directories._ids[path]
        return [index for index, p in self.partitions(topic).items() if p.directory(1) == directory_id]

    def are_assigned(self) -> bool:
        """Whether the metadata has the real directory of every replica."""
        return all(
            partition.directory(replica) == self.real_directory(self.cluster.nodes[replica], topic, index)
            for topic in ("journal", "alone")
            for index, partition in self.partitions(topic).items()
            for replica in partition.replicas
            if self.cluster.nodes[replica].broker is not None
        )

    def are_in_sync(self) -> bool:
        return all(len(partition.isr) == 3 for partition in self.partitions().values())

    async def fail(self, path: str) -> None:
        """The disk of node 1 fails, which a write notices."""
        self.node.has_disk_fault = True
        self.node.disk.fail(path)
        assert await self.produce(self.in_directory(path)[0]) is ErrorCode.kafka_storage_error

    async def until(self, condition: Callable[[], bool], within_s: float = 30) -> None:
        deadline_s = asyncio.get_running_loop().time() + within_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline_s, self.cluster.describe()
            await asyncio.sleep(0.05)


def with_disks(check: Callable[[Disks], Awaitable[None]], controllers: int = 0) -> None:
    async def main(world: World) -> None:
        disks = Disks(world, controllers)
        await disks.start()
        await check(disks)
        await disks.cluster.kill()

    simulate(main, seed=1)


@pytest.mark.parametrize("controllers", [0, 1])
def test_leaders_move_away_from_a_failed_directory_and_from_no_other(controllers: int) -> None:
    async def check(disks: Disks) -> None:
        failed, sound = disks.in_directory(TWO), disks.in_directory(ONE)
        assert failed
        assert sound
        before = disks.partitions()
        await disks.fail(TWO)
        # Long before the next regular heartbeat, let alone the end of the session.
        await disks.until(lambda: all(disks.partitions()[index].isr == (2, 3) for index in failed), 0.5)
        for index in failed:
            assert disks.partitions()[index].leader in (2, 3)
            assert await disks.produce(index) is ErrorCode.none, "min.insync.replicas is 2"
        for index in sound:
            assert disks.partitions()[index] == before[index]
            assert await disks.produce(index) is ErrorCode.none
        assert disks.node.broker is not None
        assert not disks.node.broker.failed.done()

    with_disks(check, controllers)


def test_a_partition_without_another_replica_has_no_leader() -> None:
    async def check(disks: Disks) -> None:
        failed = disks.in_directory(TWO, "alone")
        await disks.fail(TWO)
        await disks.until(
            lambda: all(disks.partitions("alone")[index].leader == NO_LEADER for index in failed)
        )
        for index, partition in disks.partitions("alone").items():
            assert (partition.leader == NO_LEADER) == (index in failed)

    with_disks(check)


def test_clients_see_the_replicas_in_a_failed_directory_as_offline() -> None:
    async def check(disks: Disks) -> None:
        failed = disks.in_directory(TWO)
        await disks.fail(TWO)
        await disks.until(lambda: all(disks.partitions()[index].leader != 1 for index in failed))
        request = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=None, name="journal"),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        (topic,) = (await disks.ask(disks.cluster.nodes[2], request)).topics
        for partition in topic.partitions:
            expected = (1,) if partition.partition_index in failed else ()
            assert partition.offline_replicas == expected

    with_disks(check)


def test_a_broker_that_starts_without_the_failed_directory_does_not_lead_its_partitions() -> None:
    async def check(disks: Disks) -> None:
        failed, sound = disks.in_directory(TWO), disks.in_directory(ONE)
        alone = disks.in_directory(TWO, "alone")
        before = disks.partitions()
        disks.node.has_disk_fault = True
        await disks.node.kill()
        disks.node.disk.fail(TWO)
        disks.node.start()
        await disks.cluster.ready()
        await disks.until(lambda: all(len(disks.partitions()[index].isr) == 3 for index in sound))
        await asyncio.sleep(5)
        for index in failed:
            assert disks.partitions()[index].isr == (2, 3)
            assert disks.partitions()[index].directory(1) == before[index].directory(1)
        for index in alone:
            assert disks.partitions("alone")[index].leader == NO_LEADER
        disks.node.disk.heal()
        await disks.node.stop()
        disks.node.start()
        await disks.cluster.ready()
        await disks.until(lambda: disks.are_in_sync() and disks.are_assigned())
        assert all(partition.leader == 1 for partition in disks.partitions("alone").values())

    with_disks(check)


def test_a_replica_that_was_never_assigned_is_lost_with_the_failed_directory() -> None:
    async def check(disks: Disks) -> None:
        await disks.node.kill()
        await disks.create("later", [(1, 2, 3)] * PARTITIONS)
        assert {partition.directory(1) for partition in disks.partitions("later").values()} == {UUID(int=1)}
        disks.node.has_disk_fault = True
        disks.node.disk.fail(TWO)
        disks.node.start()
        await disks.cluster.ready()
        # This broker cannot know whether it had these replicas before.
        await disks.until(
            lambda: {p.directory(1) for p in disks.partitions("later").values()} == {UUID(int=2)}
        )
        assert all(partition.isr == (2, 3) for partition in disks.partitions("later").values())

    with_disks(check)


def test_a_failure_before_the_assignment_is_known_takes_effect_with_it() -> None:
    async def check(disks: Disks) -> None:
        """Node 1 opens new partitions while its requests do not reach the controller."""
        broker = disks.node.broker
        assert broker is not None
        submit = broker._directories._controller.get().submit
        is_open = asyncio.Event()

        async def wait_and_submit(*arguments: Any) -> Any:
            await is_open.wait()
            return await submit(*arguments)

        broker._directories._controller.get().submit = wait_and_submit  # type: ignore[method-assign, assignment]
        await disks.create("later", [(1, 2, 3)] * PARTITIONS)
        await disks.until(lambda: all(len(p.isr) == 3 for p in disks.partitions("later").values()))
        directory_of = broker.services.log_dirs.directory_of
        later = [TopicPartition("later", index) for index in range(PARTITIONS)]
        # The controller may have the partitions, in sync, before node 1 has opened them.
        await disks.until(lambda: all(directory_of(partition) is not None for partition in later))
        in_two = [partition.partition for partition in later if directory_of(partition) == TWO]
        assert in_two
        await disks.fail(TWO)
        await asyncio.sleep(1)
        assert all(is_reserved_directory(p.directory(1)) for p in disks.partitions("later").values())
        is_open.set()
        await disks.until(lambda: all(disks.partitions("later")[index].isr == (2, 3) for index in in_two))
        assert set(disks.in_directory(TWO, "later")) == set(in_two)

    with_disks(check)
