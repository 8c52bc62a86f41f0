"""A broker that knows one controller finds all voters of the quorum."""

import asyncio
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest
from kio.schema.describe_cluster.v1.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.describe_quorum.v1 import response as v1
from kio.schema.describe_quorum.v2 import response as v2
from tests.unit.rpc.node_server import Asked, NodeServer, api_versions

from ottla.broker.quorum.discovery import with_voters
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.messages import encode_message
from ottla.sim.env import World, simulate

PORT = 9093
SCHEMAS: dict[int, ModuleType] = {1: v1, 2: v2}


class Controller:
    """Names the `registered` controllers and the leader. Only the leader describes the quorum."""

    def __init__(self, world: World, node_id: int, leader_id: int, registered: tuple[int, ...]) -> None:
        self.node_id = node_id
        self.leader_id = leader_id
        self.registered = registered
        self.voters = (101, 102, 103)
        self.addresses: tuple[int, ...] = self.voters  # the voters whose addresses are in DescribeQuorum
        self.server = NodeServer(world, f"node-{node_id}")
        self.server.answer = self.answer

    def answer(self, asked: Asked) -> None:
        describes_quorum = asked.api_key == ApiKey.DESCRIBE_QUORUM
        asked.respond(encode_message(self.quorum(asked.version) if describes_quorum else self.cluster()))

    def cluster(self) -> DescribeClusterResponse:
        return DescribeClusterResponse(
            throttle_time=timedelta(),
            error_code=ErrorCode.none,
            error_message=None,
            endpoint_type=2,
            cluster_id="c",
            controller_id=self.leader_id,
            brokers=tuple(
                DescribeClusterBroker(broker_id=each, host=f"node-{each}", port=PORT, rack=None)
                for each in self.registered
            ),
            cluster_authorized_operations=0,
        )

    def quorum(self, version: int) -> Any:
        schema = SCHEMAS[version]
        leads = self.node_id == self.leader_id
        more: dict[str, Any] = {"error_message": None} if version >= 2 else {}
        directory = {"replica_directory_id": None} if version >= 2 else {}
        voters = tuple(
            schema.ReplicaState(replica_id=voter, log_end_offset=0, **directory) for voter in self.voters
        )
        partition = schema.PartitionData(
            partition_index=0,
            error_code=ErrorCode.none if leads else ErrorCode.not_leader_or_follower,
            leader_id=self.leader_id,
            leader_epoch=1,
            high_watermark=0,
            current_voters=voters if leads else (),
            observers=(),
            **more,
        )
        if version >= 2:
            more["nodes"] = tuple(
                v2.Node(node_id=each, listeners=(v2.Listener(name="C", host=f"node-{each}", port=PORT),))
                for each in self.addresses
            )
        topic = schema.TopicData(topic_name="__cluster_metadata", partitions=(partition,))
        return schema.DescribeQuorumResponse(error_code=ErrorCode.none, topics=(topic,), **more)


async def found_by_broker(world: World, *controllers: Controller) -> str:
    for controller in controllers:
        await controller.server.listen(PORT)
    config = BrokerConfig(
        {
            "node.id": "1",
            "process.roles": "broker",
            "log.dirs": "/data",
            "listeners": "PLAINTEXT://node-1:9092",
            "controller.listener.names": "C",
            "controller.quorum.bootstrap.servers": f"node-101:{PORT}",
            "initial.broker.registration.timeout.ms": "10000",
        }
    )
    found = await with_voters(config, world.process("node-1", world.new_disk()).env)
    return ",".join(found.get_list("controller.quorum.voters"))


@pytest.mark.parametrize("version", [1, 2])
def test_the_voters_come_from_the_leader_although_few_controllers_have_registered(version: int) -> None:
    async def main(world: World) -> None:
        follower = Controller(world, 101, 103, (101, 103))
        leader = Controller(world, 103, 103, (101, 103))
        for controller in (follower, leader):
            controller.server.api_versions = api_versions(DESCRIBE_QUORUM=(0, version))
        address = "node-102:9093" if version >= 2 else "0.0.0.0:0"
        voters = f"101@node-101:9093,102@{address},103@node-103:9093"
        assert await found_by_broker(world, follower, leader) == voters

    simulate(main, 1)


def test_a_controller_that_does_not_vote_is_no_voter() -> None:
    async def main(world: World) -> None:
        leader = Controller(world, 101, 101, (101, 102, 103, 104))
        assert "104" not in await found_by_broker(world, leader)

    simulate(main, 1)


def test_a_broker_waits_until_the_quorum_has_a_leader() -> None:
    async def main(world: World) -> None:
        controller = Controller(world, 101, -1, (101, 102))
        search = asyncio.create_task(found_by_broker(world, controller))
        await asyncio.sleep(5)
        assert not search.done()
        controller.leader_id = 101
        assert (await search).count("@") == 3

    simulate(main, 1)


def test_a_quorum_without_a_leader_is_named() -> None:
    async def main(world: World) -> None:
        with pytest.raises(KafkaError, match=r"not_leader_or_follower\). Check .* that a majority of"):
            await found_by_broker(world, Controller(world, 101, -1, (101,)))

    simulate(main, 1)
