"""Three voters on their own disks: what one of them acknowledged survives crashes, power losses and cut links."""

import asyncio
import uuid
from random import Random
from typing import Any

import pytest

from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.raft_driver import RaftDriver
from ottla.broker.quorum.settings import QuorumSettings
from ottla.core.controller.commands import CreateTopics, NewTopic, RegisterBroker, UnfenceBroker
from ottla.core.controller.settings import ControllerSettings
from ottla.core.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Request,
    Response,
    VoteRequest,
)
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.sim.env import World, simulate

LOG_DIR = "/data"
VOTERS = (1, 2, 3)
TIMEOUT_S = 2.0
CONTROLLER = ControllerSettings(validate_configs=lambda resource, configs, altered: None)


class Peers:
    """Calls the other quorums in this process, with delays. The codec and the network have their own tests."""

    def __init__(self, cluster: "Cluster", node_id: int, random: Random) -> None:
        self._cluster = cluster
        self._node_id = node_id
        self._random = random

    async def call(self, node_id: int, request: Request) -> Response:
        async with asyncio.timeout(TIMEOUT_S):
            await self._travel(node_id)
            response = await respond(self._cluster.quorums[node_id].driver, request)
            await self._travel(node_id)
            return response

    async def _travel(self, node_id: int) -> None:
        await asyncio.sleep(self._random.uniform(0.0001, 0.005))
        if {self._node_id, node_id} & self._cluster.isolated or node_id not in self._cluster.quorums:
            await asyncio.sleep(TIMEOUT_S * 2)  # nothing arrives

    async def close(self) -> None:
        pass


async def respond(driver: RaftDriver, request: Request) -> Response:
    match request:
        case VoteRequest():
            return await driver.vote(request)
        case BeginQuorumEpochRequest():
            return await driver.begin_quorum_epoch(request)
        case EndQuorumEpochRequest():
            return await driver.end_quorum_epoch(request)
        case FetchRequest():
            return await driver.fetch(request, max_bytes=10_000, max_wait_ms=500)
        case FetchSnapshotRequest():
            return await driver.fetch_snapshot(request, max_bytes=300)


class Cluster:
    def __init__(self, world: World, settings: QuorumSettings) -> None:
        self.world = world
        self.settings = settings
        self.disks = {node_id: world.new_disk(LOG_DIR) for node_id in VOTERS}
        self.processes: dict[int, Any] = {}
        self.quorums: dict[int, Quorum] = {}
        self.isolated: set[int] = set()
        self.failures: list[Exception] = []

    async def start(self, node_id: int) -> None:
        process = self.world.process(f"node{node_id}", self.disks[node_id])
        peers = Peers(self, node_id, self.world.derive())

        async def main(env: Env) -> None:
            quorum = Quorum(
                env,
                LOG_DIR,
                node_id=node_id,
                voters=VOTERS,
                controller=CONTROLLER,
                settings=self.settings,
                on_failure=self.failures.append,
                peers=peers,
            )
            await quorum.start()
            self.quorums[node_id] = quorum

        await process.run(main)
        self.processes[node_id] = process

    async def lose_power(self, node_id: int) -> None:
        del self.quorums[node_id]
        await self.processes.pop(node_id).lose_power()
        self.disks[node_id] = self.disks[node_id].reopen()

    async def submit(self, command: Any) -> Any:
        """Asks every node until one of them is the active controller and responds."""
        while True:
            for quorum in list(self.quorums.values()):
                try:
                    async with asyncio.timeout(5):
                        return await quorum.submit(command)
                except (KafkaError, TimeoutError) as error:
                    if isinstance(error, KafkaError) and error.code is not ErrorCode.not_controller:
                        raise
            await asyncio.sleep(0.1)

    async def create(self, name: str) -> None:
        topic_id = uuid.UUID(int=self.world.random.getrandbits(120) + 1)
        (result,) = await self.submit(CreateTopics((NewTopic(name, topic_id, 2, 1),)))
        # The first attempt may have been committed without a response.
        assert result.error.code in (ErrorCode.none, ErrorCode.topic_already_exists), result

    async def register_broker(self) -> None:
        epoch = await self.submit(RegisterBroker(1, uuid.UUID(int=7), (), (), (uuid.UUID(int=9),)))
        await self.submit(UnfenceBroker(1, epoch))

    def leader(self) -> int:
        return next(node for node, quorum in self.quorums.items() if quorum.machine is not None)

    async def agree(self) -> None:
        """Waits until all nodes have applied the same records."""
        for attempt in range(300):
            images = [quorum.image for quorum in self.quorums.values()]
            if len(images) == len(VOTERS) and len({image.offset for image in images}) == 1:
                assert images[0] == images[1] == images[2]
                return
            assert attempt < 299, f"offsets {[image.offset for image in images]}"
            await asyncio.sleep(0.1)


def in_cluster(test: Any, seed: int, settings: QuorumSettings | None = None) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, settings or QuorumSettings())
        for node_id in VOTERS:
            await cluster.start(node_id)
        await cluster.register_broker()
        await test(cluster)
        assert not cluster.failures

    simulate(main, seed)


def test_all_nodes_apply_what_the_leader_commits() -> None:
    async def check(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.agree()
        assert all("a" in quorum.image.topics for quorum in cluster.quorums.values())
        description = cluster.quorums[1].describe_quorum()
        assert description.leader_id == cluster.leader()
        assert description.voters == VOTERS

    in_cluster(check, 1)


def test_a_follower_rejects_commands_and_names_the_leader() -> None:
    async def check(cluster: Cluster) -> None:
        leader = cluster.leader()
        follower = next(node for node in VOTERS if node != leader)
        with pytest.raises(KafkaError) as rejected:
            await cluster.quorums[follower].submit(CreateTopics((NewTopic("a", uuid.UUID(int=1), 1, 1),)))
        assert rejected.value.code is ErrorCode.not_controller
        assert f"node {leader} is" in rejected.value.message

    in_cluster(check, 1)


def test_a_leader_without_a_majority_commits_nothing_and_gives_way() -> None:
    async def check(cluster: Cluster) -> None:
        old = cluster.leader()
        cluster.isolated = {old}
        lost = asyncio.create_task(
            cluster.quorums[old].submit(CreateTopics((NewTopic("lost", uuid.UUID(int=1), 1, 1),)))
        )
        await cluster.create("kept")
        with pytest.raises(KafkaError) as rejected:
            await lost
        assert rejected.value.code is ErrorCode.not_controller
        assert "lost" not in cluster.quorums[old].image.topics
        cluster.isolated = set()
        await cluster.agree()
        assert "kept" in cluster.quorums[old].image.topics
        assert "lost" not in cluster.quorums[old].image.topics

    in_cluster(check, 1)


def test_a_node_that_missed_much_gets_a_snapshot() -> None:
    async def check(cluster: Cluster) -> None:
        follower = next(node for node in VOTERS if node != cluster.leader())
        await cluster.lose_power(follower)
        for number in range(40):
            await cluster.create(f"t{number}")
        await asyncio.sleep(61)
        await cluster.create("last")
        await cluster.start(follower)
        await cluster.agree()
        assert cluster.quorums[follower].driver.node.log.start_offset > 0

    small = QuorumSettings(snapshot_bytes=1_500, retention_bytes=3_000, segment_bytes=3_000)
    in_cluster(check, 1, small)


@pytest.mark.parametrize("seed", range(12))
def test_acknowledged_commands_survive_power_losses_and_cut_links(seed: int) -> None:
    async def check(cluster: Cluster) -> None:
        random = cluster.world.random
        acknowledged: list[str] = []

        async def create() -> None:
            for number in range(60):
                await cluster.create(f"t{number}")
                acknowledged.append(f"t{number}")
                await asyncio.sleep(random.uniform(0, 1))

        work = asyncio.create_task(create())
        while not work.done():
            await asyncio.sleep(random.uniform(0, 3))
            active = [node for node, quorum in cluster.quorums.items() if quorum.machine is not None]
            victim = random.choice(active or VOTERS)
            if random.random() < 0.5:
                victim = random.choice(VOTERS)
            if random.random() < 0.5:
                cluster.isolated = {victim}
                await asyncio.sleep(random.uniform(0, 6))
                cluster.isolated = set()
            else:
                await cluster.lose_power(victim)
                await asyncio.sleep(random.uniform(0, 4))
                await cluster.start(victim)
        await work
        await cluster.agree()
        assert set(acknowledged) <= set(cluster.quorums[1].image.topics)
        for quorum in cluster.quorums.values():
            quorum.driver.node.validate()

    in_cluster(check, seed, QuorumSettings(snapshot_bytes=3_000, retention_bytes=6_000, segment_bytes=4_000))
