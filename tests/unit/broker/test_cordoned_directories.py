"""A broker puts no new replica into a cordoned directory, and reports it to the controller (KIP-1066)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kio.schema.alter_configs.v2.request import AlterableConfig as ReplacedConfig
from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterConfigsResource as ReplacedResource
from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

from ottla.core.controller.commands import ConfigChange, ConfigOp, IncrementalAlterConfigs
from ottla.core.controller.image import ConfigResource
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.client import SimClient
from ottla.sim.cluster import CONTROLLER_PORT, PORT, Cluster, ClusterNode
from ottla.sim.env import World, simulate

pytestmark = pytest.mark.slow
ONE, TWO = "/data/one", "/data/two"
CONFIG = {"log.dirs": f"{ONE},{TWO}", "metadata.log.dir": "/data/metadata"}
SET, DELETE, APPEND = 0, 1, 2


class Cordons:
    def __init__(self, world: World, controllers: int, config: dict[str, str]) -> None:
        self.world = world
        self.cluster = Cluster(world, 2, controllers, CONFIG | config)
        self.node = self.cluster.nodes[1]

    async def ask(self, node: ClusterNode, message: Any, port: int = PORT) -> Any:
        client = SimClient(self.world.network.host("client"), (node.host, port), "client", timeout_s=60)
        try:
            return await client.request(message)
        finally:
            client.close()

    async def cordon(
        self,
        value: str | None,
        operation: int = SET,
        node: ClusterNode | None = None,
        port: int = PORT,
        **options: bool,
    ) -> ErrorCode:
        """Cordons directories of node 1 by a request to `node`. With `is_legacy` AlterConfigs replaces all configs."""
        names: Any = {"resource_type": ResourceType.BROKER, "resource_name": "1"}
        request: Any
        if options.get("is_legacy"):
            config = ReplacedConfig(name="cordoned.log.dirs", value=value)
            request = AlterConfigsRequest(
                resources=(ReplacedResource(**names, configs=(config,)),), validate_only=False
            )
        else:
            change = AlterableConfig(name="cordoned.log.dirs", config_operation=operation, value=value)
            request = IncrementalAlterConfigsRequest(
                resources=(AlterConfigsResource(**names, configs=(change,)),), validate_only=False
            )
        (response,) = (await self.ask(node or self.node, request, port)).responses
        assert (response.error_code is ErrorCode.none) is (response.error_message is None)
        code: ErrorCode = response.error_code
        return code

    async def set_in_metadata(self, value: str) -> None:
        """As if another release or Apache Kafka's controller had accepted it."""
        (active,) = self.cluster.active_controllers()
        assert active.quorum is not None
        change = ConfigChange("cordoned.log.dirs", ConfigOp.SET, value)
        resource = ConfigResource(ResourceType.BROKER, "1")
        await active.quorum.submit(IncrementalAlterConfigs(((resource, (change,)),)))

    async def create(self, name: str, partitions: int = 8, replicas: int = 1) -> ErrorCode:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
        )
        request = CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        (result,) = (await self.ask(self.cluster.nodes[2], request)).topics
        code: ErrorCode = result.error_code
        return code

    async def reported(self) -> list[str]:
        """The cordoned directories of node 1, as it describes them."""
        results = (await self.ask(self.node, DescribeLogDirsRequest(topics=None))).results
        return sorted(result.log_dir for result in results if result.is_cordoned)

    def registered(self) -> list[str]:
        """As the controller has them."""
        assert self.node.broker is not None
        ids: dict[Any, str] = {each: path for path, each in self.node.broker._directories._ids.items()}
        return sorted(ids[each] for each in self.cluster.image().brokers[1].cordoned_log_dirs or ())

    def directories_of(self, topic: str) -> set[str | None]:
        assert self.node.broker is not None
        log_dirs = self.node.broker.services.log_dirs
        return {
            log_dirs.directory_of(TopicPartition(topic, index))
            for index, partition in self.cluster.image().topics[topic].partitions.items()
            if 1 in partition.replicas
        }

    async def until(self, condition: Callable[[], bool], within_s: float = 10) -> None:
        deadline_s = asyncio.get_running_loop().time() + within_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline_s, self.cluster.describe()
            await asyncio.sleep(0.05)


def with_cordons(
    check: Callable[[Cordons], Awaitable[None]], controllers: int = 0, config: dict[str, str] | None = None
) -> None:
    async def main(world: World) -> None:
        cordons = Cordons(world, controllers, config or {})
        await cordons.cluster.start()
        await check(cordons)
        await cordons.cluster.kill()

    simulate(main, seed=1)


@pytest.mark.parametrize("controllers", [0, 1])
def test_new_replicas_go_to_the_other_directories_and_brokers(controllers: int) -> None:
    async def check(cordons: Cordons) -> None:
        assert await cordons.cordon(ONE) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [ONE], 1)
        assert await cordons.reported() == [ONE]
        for topic, partitions in (("one", 8), ("many", 30)):  # many are created in steps, ahead in a thread
            await cordons.create(topic, partitions, replicas=2)
            await cordons.until(lambda topic=topic: cordons.directories_of(topic) == {TWO})  # type: ignore[misc]
        assert await cordons.cordon("*") is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [ONE, TWO], 1)
        assert await cordons.create("both", replicas=2) is ErrorCode.invalid_replication_factor
        assert await cordons.create("both") is ErrorCode.none
        assert cordons.directories_of("both") == set()
        assert await cordons.cordon(None, DELETE) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [], 1)
        assert await cordons.create("none", replicas=2) is ErrorCode.none
        await cordons.until(lambda: cordons.directories_of("none") == {ONE})  # it has the fewest partitions

    with_cordons(check, controllers)


def test_a_topic_with_many_partitions_and_one_that_is_created_again_go_to_the_other_directory() -> None:
    """The broker creates the files of many new partitions ahead, in threads."""

    async def check(cordons: Cordons) -> None:
        assert await cordons.cordon(ONE) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [ONE])
        for _ in range(2):
            assert await cordons.create("wide", 60, replicas=2) is ErrorCode.none
            await cordons.until(lambda: cordons.directories_of("wide") == {TWO})
            topics = (DeleteTopicState(name="wide", topic_id=None),)
            request = DeleteTopicsRequest(topics=topics, timeout=timedelta(seconds=5))
            (result,) = (await cordons.ask(cordons.cluster.nodes[2], request)).responses
            assert result.error_code is ErrorCode.none

    with_cordons(check)


def test_a_replica_is_not_moved_into_a_cordoned_directory() -> None:
    async def check(cordons: Cordons) -> None:
        await cordons.create("journal", 1, 2)
        await cordons.until(lambda: None not in cordons.directories_of("journal"))
        (here,) = cordons.directories_of("journal")
        other = ONE if here == TWO else TWO
        topic = AlterReplicaLogDirTopic(name="journal", partitions=(0,))
        request = AlterReplicaLogDirsRequest(dirs=(AlterReplicaLogDir(path=other, topics=(topic,)),))
        await cordons.cordon(other)
        await cordons.until(lambda: cordons.registered() == [other])
        for expected in (ErrorCode.invalid_replica_assignment, ErrorCode.none):
            (moved,) = (await cordons.ask(cordons.node, request)).results
            assert [partition.error_code for partition in moved.partitions] == [expected]
            await cordons.cordon(None, DELETE)
        await cordons.until(lambda: cordons.directories_of("journal") == {other})

    with_cordons(check)


@pytest.mark.parametrize("controllers", [0, 1])
def test_directories_that_the_broker_does_not_have_are_refused(controllers: int) -> None:
    async def check(cordons: Cordons) -> None:
        assert await cordons.cordon("/elsewhere") is ErrorCode.invalid_request
        assert await cordons.cordon(f"{ONE},*") is ErrorCode.invalid_request
        assert await cordons.cordon(ONE) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [ONE])
        assert await cordons.cordon("*", APPEND) is ErrorCode.invalid_request
        assert await cordons.cordon(TWO, APPEND) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [ONE, TWO])

    with_cordons(check, controllers)


@pytest.mark.parametrize("controllers", [0, 1])
def test_alter_configs_refuses_directories_that_the_broker_does_not_have(controllers: int) -> None:
    async def check(cordons: Cordons) -> None:
        assert await cordons.cordon("/elsewhere", is_legacy=True) is ErrorCode.invalid_request
        assert await cordons.cordon(f"{ONE},*", is_legacy=True) is ErrorCode.invalid_request
        assert await cordons.cordon(TWO, is_legacy=True) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [TWO])

    with_cordons(check, controllers)


@pytest.mark.parametrize("controllers", [0, 1])
@pytest.mark.parametrize("is_legacy", [True, False])
def test_other_nodes_remove_entries_and_add_none(controllers: int, is_legacy: bool) -> None:
    """They do not know the directories of the broker. As in Kafka, the new value is a subset of the present one."""

    async def check(cordons: Cordons) -> None:
        (active,) = cordons.cluster.active_controllers()
        for node, port in ((cordons.cluster.nodes[2], PORT), (active, CONTROLLER_PORT)):
            if node is cordons.node:
                continue  # it knows its directories, also as the controller
            ask = partial(cordons.cordon, node=node, port=port, is_legacy=is_legacy)
            assert await ask("/elsewhere") is ErrorCode.invalid_config
            assert await ask(ONE) is ErrorCode.invalid_config
            assert await ask("*") is ErrorCode.invalid_config
            assert await ask("") is ErrorCode.none
            assert await cordons.cordon(f"{ONE},{TWO}") is ErrorCode.none
            await cordons.until(lambda: cordons.registered() == [ONE, TWO])
            assert await ask(f"{TWO},/elsewhere") is ErrorCode.invalid_config
            if not is_legacy:
                assert await ask("/elsewhere", APPEND) is ErrorCode.invalid_config
                assert await ask(TWO, APPEND) is ErrorCode.none
            assert await ask(TWO) is ErrorCode.none
            await cordons.until(lambda: cordons.registered() == [TWO])
            assert await cordons.cordon(None, DELETE, node, port) is ErrorCode.none
            await cordons.until(lambda: cordons.registered() == [])

    with_cordons(check, controllers)


def test_an_unknown_directory_in_the_metadata_lifts_no_cordon(caplog: pytest.LogCaptureFixture) -> None:
    """log.dirs may have changed since, or the controller is Apache Kafka's."""

    async def check(cordons: Cordons) -> None:
        assert await cordons.cordon(TWO) is ErrorCode.none
        await cordons.until(lambda: cordons.registered() == [TWO])
        for value, expected in ((f"/gone,{ONE}", [ONE]), ("/gone,*", [ONE, TWO]), ("/gone", [])):
            await cordons.set_in_metadata(value)
            await cordons.until(lambda expected=expected: cordons.registered() == expected)  # type: ignore[misc]
            assert await cordons.reported() == expected
        await cordons.set_in_metadata(f"/gone,{ONE}")
        await cordons.until(lambda: cordons.registered() == [ONE])
        await cordons.create("journal", replicas=2)
        await cordons.until(lambda: cordons.directories_of("journal") == {TWO})

    with_cordons(check)
    (warning,) = [record.getMessage() for record in caplog.records if "/gone" in record.getMessage()]
    assert "have no effect: /gone" in warning
    assert "Remove" in warning


def test_the_cordon_remains_while_the_broker_restarts() -> None:
    async def check(cordons: Cordons) -> None:
        await cordons.cordon("*")
        await cordons.until(lambda: cordons.registered() == [ONE, TWO])
        seen: set[object] = set()
        await cordons.node.kill()
        cordons.node.start()

        def is_back() -> bool:
            broker = cordons.cluster.image().brokers[1]
            seen.add(frozenset(broker.cordoned_log_dirs or ()))
            return cordons.node.broker is not None and not broker.fenced

        await cordons.until(is_back, 30)
        await asyncio.sleep(3)
        is_back()
        assert len(seen) == 1
        assert cordons.registered() == [ONE, TWO]

    with_cordons(check)


def test_a_broker_may_start_with_a_cordoned_directory() -> None:
    async def check(cordons: Cordons) -> None:
        await cordons.until(lambda: cordons.registered() == [TWO])
        await cordons.create("journal", replicas=2)
        await cordons.until(lambda: cordons.directories_of("journal") == {ONE})

    with_cordons(check, config={"cordoned.log.dirs": TWO})


def test_a_cordoned_directory_that_fails_is_no_longer_reported() -> None:
    async def check(cordons: Cordons) -> None:
        await cordons.create("journal", replicas=2)
        await cordons.until(lambda: cordons.directories_of("journal") == {ONE, TWO})
        await cordons.cordon(TWO)
        await cordons.until(lambda: cordons.registered() == [TWO])
        cordons.node.has_disk_fault = True
        cordons.node.disk.fail(TWO)
        await cordons.create("more", replicas=2)
        assert cordons.node.broker is not None
        log_dirs = cordons.node.broker.services.log_dirs
        failed = next(p for p, log_dir in log_dirs._dir_of.items() if log_dir.path == TWO)
        log_dirs.handle_error(failed, OSError(5, "Input/output error"))
        await cordons.until(lambda: len(cordons.cluster.image().brokers[1].log_dirs) == 1)
        assert not cordons.node.broker.failed.done()
        assert not cordons.cluster.image().brokers[1].fenced
        assert await cordons.create("again", replicas=2) is ErrorCode.none
        await cordons.until(lambda: cordons.directories_of("again") == {ONE})

    with_cordons(check)
