"""AddRaftVoter through a broker, which forwards it (KIP-590): it may wait long, and others must not (KIP-853)."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from tests.unit.broker.quorum.test_handlers_of_voters import CLUSTER_ID, Controllers, wait_until

from ottla.broker.formatter import format_directories
from ottla.broker.node import Broker
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.rpc.addresses import Address
from ottla.sim.client import SimClient
from ottla.sim.env import World, simulate

BROKER_ID = 11
CONFIG = {
    "node.id": str(BROKER_ID),
    "process.roles": "broker",
    "listeners": f"PLAINTEXT://broker{BROKER_ID}:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "node1:9093",
    "log.dirs": "/data",
    "log.index.size.max.bytes": "4096",
}
STRANGER = UUID(int=5)  # no node has this directory, so it never catches up
BROKER = Address(f"broker{BROKER_ID}", 9092)
SOCKET_TIMEOUT_S, CLIENT_TIMEOUT_S = 30.0, 100.0


class ClusterOfTest:
    """Controller 1 is the only voter, controllers 2 and 3 are observers, and there is a broker."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.controllers = Controllers(world)
        self.broker: Broker

    async def start(self) -> None:
        for node_id in (1, 2, 3):
            await self.controllers.start(node_id)
        process = self.world.process(f"broker{BROKER_ID}", self.world.new_disk("/data"))
        self.broker = await process.run(self._start_broker)
        await wait_until(lambda: self.controllers.quorum(1).image.brokers[BROKER_ID].is_active)

    async def _start_broker(self, env: Env) -> Broker:
        config = BrokerConfig(CONFIG)
        format_directories(env, config, cluster_id=CLUSTER_ID)
        return await Broker.start(config, env)

    async def ask(self, request: Any, address: Address = BROKER) -> tuple[Any, float]:
        """The response to a client of its own, and the seconds that it took."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        client = SimClient(self.world.network.host("client"), address, "client")
        response = await client.request(request, CLIENT_TIMEOUT_S)
        return response, loop.time() - began_s


def with_cluster(test: Callable[[ClusterOfTest], Awaitable[None]]) -> None:
    async def main(world: World) -> None:
        cluster = ClusterOfTest(world)
        await cluster.start()
        async with asyncio.timeout(3600):
            await test(cluster)

    simulate(main, 1)


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=())
    return CreateTopicsRequest(topics=(topic,))


def test_a_topic_is_created_through_a_broker_that_waits_for_an_addition() -> None:
    async def check(cluster: ClusterOfTest) -> None:
        add = cluster.controllers.addition
        hopeless = add(2, voter_directory_id=STRANGER, timeout=timedelta(minutes=2))
        addition = asyncio.create_task(cluster.ask(hopeless))
        await asyncio.sleep(1)
        response, seconds = await cluster.ask(creation("t"))
        assert response.topics[0].error_code is ErrorCode.none
        assert seconds < 1
        assert not addition.done()
        response, seconds = await addition
        assert response.error_code is ErrorCode.request_timed_out
        assert "has not caught up" in response.error_message
        assert seconds < SOCKET_TIMEOUT_S

    with_cluster(check)


def test_a_removal_through_a_broker_ends_an_addition_that_waits_there() -> None:
    async def check(cluster: ClusterOfTest) -> None:
        controllers = cluster.controllers
        response, _ = await cluster.ask(controllers.addition(3))
        assert response.error_code is ErrorCode.none
        hopeless = controllers.addition(2, voter_directory_id=STRANGER, timeout=timedelta(minutes=2))
        addition = asyncio.create_task(cluster.ask(hopeless))
        await asyncio.sleep(1)
        response, seconds = await cluster.ask(controllers.removal(3))
        assert (response.error_code, seconds < 1) == (ErrorCode.none, True)
        response, _ = await addition
        assert "another change of the voters was asked for" in response.error_message

    with_cluster(check)


def test_an_addition_at_the_controller_itself_ends_before_a_broker_would_give_it_up() -> None:
    async def check(cluster: ClusterOfTest) -> None:
        hopeless = cluster.controllers.addition(2, voter_directory_id=STRANGER, timeout=timedelta(minutes=2))
        response, seconds = await cluster.ask(hopeless, Address("node1", 9093))
        assert response.error_code is ErrorCode.request_timed_out
        assert SOCKET_TIMEOUT_S / 2 < seconds < SOCKET_TIMEOUT_S

    with_cluster(check)
