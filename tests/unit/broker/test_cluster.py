"""Three simulated nodes: requests to any broker reach the controller, and leaders move."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from datetime import timedelta
from struct import pack
from typing import Any

import pytest
from kio.schema.broker_registration.v4.request import BrokerRegistrationRequest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.elect_leaders.v2.request import ElectLeadersRequest, TopicPartitions
from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.unregister_broker.v0.request import UnregisterBrokerRequest

from ottla.broker.formatter import format_directories, new_cluster_id
from ottla.broker.node import Broker
from ottla.core.controller.commands import CreateTopics
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.sim.client import SimClient
from ottla.sim.cluster import CONTROLLER_PORT, FIRST_CONTROLLER_ID, PORT, Cluster, ClusterNode
from ottla.sim.env import World, simulate

pytestmark = pytest.mark.slow

Check = Callable[["Nodes"], Awaitable[None]]


class Nodes:
    """A running cluster, and clients that ask one node each."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self._network = world.network.host("client")

    async def ask(self, node: ClusterNode, message: Any, port: int = PORT) -> Any:
        client = SimClient(self._network, (node.host, port), "client", timeout_s=60)
        try:
            return await client.request(message)
        finally:
            client.close()

    async def create(self, node: ClusterNode, name: str, partitions: int = 1, replicas: int = 3) -> Any:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, assignments=(), configs=()
        )
        request = CreateTopicsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        (result,) = (await self.ask(node, request)).topics
        return result

    async def find_coordinator(self, node: ClusterNode) -> ErrorCode:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=("group",))
        (found,) = (await self.ask(node, request)).coordinators
        code: ErrorCode = found.error_code
        return code

    def controller(self) -> ClusterNode:
        (active,) = self.cluster.active_controllers()
        return active

    def other(self) -> ClusterNode:
        """A broker that is not the active controller."""
        return next(node for node in self.cluster.brokers if not node.is_active_controller)

    async def until(self, condition: Callable[[], bool], within_s: float = 30) -> None:
        deadline_s = asyncio.get_running_loop().time() + within_s
        while not condition():
            assert asyncio.get_running_loop().time() < deadline_s, self.cluster.describe()
            await asyncio.sleep(0.1)


def in_cluster(check: Check, *, brokers: int = 3, controllers: int = 0) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, brokers, controllers)
        await cluster.start()
        await check(Nodes(world, cluster))
        await cluster.kill()

    simulate(main, seed=1)


@pytest.mark.parametrize("controllers", [0, 1])
def test_any_broker_creates_a_topic_and_all_of_them_serve_its_metadata(controllers: int) -> None:
    async def check(nodes: Nodes) -> None:
        created = await nodes.create(nodes.other(), "journal", partitions=3)
        assert created.error_code is ErrorCode.none
        await nodes.until(
            lambda: all(
                "journal" in node.quorum.image.topics for node in nodes.cluster.brokers if node.quorum
            )
        )
        request = MetadataRequest(
            topics=(MetadataRequestTopic(topic_id=None, name="journal"),),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        for node in nodes.cluster.brokers:
            response = await nodes.ask(node, request)
            assert {broker.node_id for broker in response.brokers} == {1, 2, 3}
            (topic,) = response.topics
            assert {partition.leader_id for partition in topic.partitions} == {1, 2, 3}

    in_cluster(check, controllers=controllers)


def test_a_topic_that_exists_is_reported_through_the_envelope() -> None:
    async def check(nodes: Nodes) -> None:
        await nodes.create(nodes.other(), "journal")
        again = await nodes.create(nodes.other(), "journal")
        assert again.error_code is ErrorCode.topic_already_exists
        assert "already exists" in again.error_message

    in_cluster(check)


def test_without_a_majority_a_change_gets_an_error_and_not_silence() -> None:
    async def check(nodes: Nodes) -> None:
        left, *others = nodes.cluster.brokers
        for node in others:
            await node.kill()
        result = await nodes.create(left, "journal")
        assert result.error_code is ErrorCode.not_controller

    in_cluster(check)


def test_an_envelope_is_served_by_the_active_controller_only_and_holds_requests_of_clients_only() -> None:
    async def check(nodes: Nodes) -> None:
        def envelope(data: bytes) -> EnvelopeRequest:
            return EnvelopeRequest(request_data=data, request_principal=None, client_host_address=bytes(4))

        response = await nodes.ask(nodes.other(), envelope(b""), CONTROLLER_PORT)
        assert response.error_code is ErrorCode.not_controller
        active = nodes.controller()
        for data in (b"", b"\x00", pack(">hhih", ApiKey.VOTE, 2, 1, -1), pack(">h", -1)):
            response = await nodes.ask(active, envelope(data), CONTROLLER_PORT)
            assert response.error_code is ErrorCode.invalid_request
        garbage = pack(">hhih", ApiKey.CREATE_TOPICS, 7, 1, -1) + b"\x00\xff"
        with pytest.raises(ConnectionError):
            await nodes.ask(active, envelope(garbage), CONTROLLER_PORT)
        assert (await nodes.create(nodes.other(), "journal")).error_code is ErrorCode.none

    in_cluster(check)


def test_controllers_are_described_on_their_own_listener() -> None:
    async def check(nodes: Nodes) -> None:
        await nodes.until(lambda: len(nodes.cluster.image().controllers) == 3)
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=2, include_fenced_brokers=False
        )
        response = await nodes.ask(nodes.other(), request, CONTROLLER_PORT)
        assert response.controller_id == nodes.controller().node_id
        assert {(node.broker_id, node.port) for node in response.brokers} == {
            (node_id, CONTROLLER_PORT) for node_id in (1, 2, 3)
        }
        response = await nodes.ask(nodes.other(), request)
        assert response.error_code is ErrorCode.mismatched_endpoint_type

    in_cluster(check)


def test_a_registration_of_another_cluster_is_rejected() -> None:
    async def check(nodes: Nodes) -> None:
        request = BrokerRegistrationRequest(
            broker_id=9, cluster_id="another", incarnation_id=None, listeners=(), features=(), rack=None
        )
        response = await nodes.ask(nodes.controller(), request, CONTROLLER_PORT)
        assert response.error_code is ErrorCode.inconsistent_cluster_id
        assert 9 not in nodes.cluster.image().brokers

    in_cluster(check)


def test_a_dead_broker_is_fenced_soon_its_leaders_move_and_it_can_be_unregistered() -> None:
    async def check(nodes: Nodes) -> None:
        await nodes.create(nodes.other(), "journal", partitions=3)
        victim = nodes.other()
        await victim.kill()
        await nodes.until(lambda: nodes.cluster.image().brokers[victim.node_id].fenced, within_s=4)
        leaders = {nodes.cluster.leader_of("journal", index) for index in range(3)}
        assert leaders == {1, 2, 3} - {victim.node_id}
        request = UnregisterBrokerRequest(broker_id=victim.node_id)
        assert (await nodes.ask(nodes.controller(), request)).error_code is ErrorCode.none
        assert victim.node_id not in nodes.cluster.image().brokers

    in_cluster(check)


def test_a_broker_that_returns_copies_what_it_missed_and_may_lead_again() -> None:
    async def check(nodes: Nodes) -> None:
        await nodes.create(nodes.other(), "journal")
        victim = nodes.cluster.nodes[nodes.cluster.leader_of("journal", 0)]
        await victim.kill()
        await nodes.until(lambda: nodes.cluster.leader_of("journal", 0) not in (-1, victim.node_id))
        victim.start()
        await nodes.until(lambda: len(nodes.cluster.isr_of("journal", 0)) == 3)
        elect = ElectLeadersRequest(
            election_type=0,
            topic_partitions=(TopicPartitions(topic="journal", partitions=(0, 7)),),
            timeout=timedelta(seconds=5),
        )
        (result,) = (await nodes.ask(nodes.other(), elect)).replica_election_results
        codes = {each.partition_id: each.error_code for each in result.partition_result}
        assert codes == {0: ErrorCode.none, 7: ErrorCode.unknown_topic_or_partition}
        assert nodes.cluster.leader_of("journal", 0) == victim.node_id

    in_cluster(check)


def test_a_controlled_shutdown_moves_the_leaders_first() -> None:
    async def check(nodes: Nodes) -> None:
        await nodes.create(nodes.other(), "journal", partitions=3)
        leaving = nodes.other()
        await leaving.stop()
        image = nodes.cluster.image()
        assert image.brokers[leaving.node_id].in_controlled_shutdown or image.brokers[leaving.node_id].fenced
        assert {partition.leader for partition in image.topics["journal"].partitions.values()} == (
            {1, 2, 3} - {leaving.node_id}
        )

    in_cluster(check)


def test_a_broker_finds_the_voters_through_any_controller() -> None:
    async def check(nodes: Nodes) -> None:
        cluster = nodes.cluster
        await nodes.until(lambda: len(cluster.image().controllers) == 3)
        late = cluster.nodes[3]
        await late.kill()
        late._config["controller.quorum.voters"] = ""
        late._config["controller.quorum.bootstrap.servers"] = f"node-102:{CONTROLLER_PORT},nowhere:1"
        late.start()
        await cluster.ready()
        assert (await nodes.create(late, "journal")).error_code is ErrorCode.none

    in_cluster(check, controllers=3)


@pytest.mark.parametrize("controllers", [0, 1])
def test_a_broker_of_another_cluster_gives_up_at_once_and_says_what_to_do(controllers: int) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, 3, controllers)
        stranger = cluster.nodes[3]
        stranger._cluster_id = new_cluster_id(world.process("stranger", world.new_disk()).env)
        for node in cluster.nodes.values():
            if node is not stranger:
                node.start()
        others = [node for node in cluster.nodes.values() if node is not stranger]
        await Nodes(world, cluster).until(lambda: all(node.running for node in others))
        env = world.process(stranger.host, stranger.disk).env
        config = BrokerConfig(stranger._config)
        format_directories(env, config, cluster_id=stranger._cluster_id, ignore_formatted=True)
        began_s = asyncio.get_running_loop().time()
        with pytest.raises(
            KafkaError, match=r"belongs to another cluster .* Set controller.quorum.voters"
        ) as raised:
            await Broker.start(config, env)
        assert raised.value.code is ErrorCode.inconsistent_cluster_id
        assert asyncio.get_running_loop().time() - began_s < 10
        assert all(node.failure is None and node.running for node in others)
        await cluster.kill()

    simulate(main, seed=1)


def test_a_request_that_waits_for_a_paused_controller_is_sent_to_the_next_one() -> None:
    async def check(nodes: Nodes) -> None:
        paused, asked = nodes.controller(), nodes.other()
        began_s = asyncio.get_running_loop().time()
        paused.pause()
        created = await nodes.create(asked, "journal", replicas=1)
        assert created.error_code is ErrorCode.none
        assert asyncio.get_running_loop().time() - began_s < 10, "it waited for controller.socket.timeout.ms"
        paused.resume()
        await nodes.until(
            lambda: all(
                "journal" in node.quorum.image.topics for node in nodes.cluster.brokers if node.quorum
            )
        )

    in_cluster(check)


def test_a_broker_whose_metadata_log_fails_while_it_starts_says_so_and_leaves_nothing_behind() -> None:
    async def check(nodes: Nodes) -> None:
        (node,) = nodes.cluster.brokers
        await node.stop()
        log = f"/data/__cluster_metadata-0/{0:020d}.log"
        node.disk.fail(log, errno.ENOSPC, operations=frozenset({"write"}))
        process = nodes.world.process(node.host, node.disk)

        async def start(env: Env) -> None:
            before = asyncio.all_tasks()
            with pytest.raises(OSError, match="No space left"):
                await asyncio.wait_for(Broker.start(BrokerConfig(node._config), env), 600)
            assert not {"heartbeats", "quorum"} & {task.get_name() for task in asyncio.all_tasks() - before}

        await process.run(start)
        await process.kill()

    in_cluster(check, brokers=1, controllers=1)


def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    async def check(nodes: Nodes) -> None:
        (node,) = nodes.cluster.brokers
        await node.stop()
        await nodes.cluster.nodes[FIRST_CONTROLLER_ID].kill()  # nobody registers the broker
        process = nodes.world.process(node.host, node.disk)

        async def start(env: Env) -> None:
            before = asyncio.all_tasks()
            starting = asyncio.create_task(Broker.start(BrokerConfig(node._config), env))
            await asyncio.sleep(5)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            assert not {"heartbeats", "quorum"} & {task.get_name() for task in asyncio.all_tasks() - before}

        await process.run(start)
        await process.kill()

    in_cluster(check, brokers=1, controllers=1)


def test_the_first_broker_of_several_with_one_controller_creates_no_internal_topic() -> None:
    """The topic would keep the one replica that it can get now."""

    async def main(world: World) -> None:
        cluster = Cluster(world, 3, 1)
        nodes, first = Nodes(world, cluster), cluster.nodes[1]
        for node in cluster.brokers:
            del node._config["offsets.topic.replication.factor"]
        cluster.nodes[FIRST_CONTROLLER_ID].start()
        first.start()
        await nodes.until(lambda: first.running is not None)
        assert await nodes.find_coordinator(first) is ErrorCode.coordinator_not_available
        for node in cluster.brokers[1:]:
            node.start()
        await cluster.ready()
        assert "__consumer_offsets" not in cluster.image().topics
        await nodes.find_coordinator(first)
        partitions = cluster.image().topics["__consumer_offsets"].partitions.values()
        assert {len(partition.replicas) for partition in partitions} == {3}
        await cluster.kill()

    simulate(main, 1)


def test_a_topic_that_is_created_on_demand_ends_no_other_request_to_the_controller() -> None:
    """Its request gives up after a second, and that ends the connection."""

    async def check(nodes: Nodes) -> None:
        active = nodes.controller()
        other = next(node for node in nodes.cluster.brokers if node is not active)
        assert active.quorum is not None
        submit, created = active.quorum.submit, []

        async def submit_slowly(command: Any) -> Any:
            result = await submit(command)
            if isinstance(command, CreateTopics):
                created.append(command.topics[0].name)
                await asyncio.sleep(3)
            return result

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(active.quorum, "submit", submit_slowly)
            slow = asyncio.create_task(nodes.create(other, "slow"))
            await nodes.until(lambda: created == ["slow"])
            await nodes.find_coordinator(other)
            assert (await slow).error_code is ErrorCode.none
        assert created.count("slow") == 1

    in_cluster(check)
