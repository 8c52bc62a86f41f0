"""Three voters on the simulated network: elections, commits, snapshots, and peers that cannot be trusted."""

import asyncio
import logging
from typing import Any

import pytest
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from tests.unit.broker.quorum.network_cluster import PORT, VOTERS, NetworkCluster, in_network_cluster
from tests.unit.rpc.node_server import Asked, NodeServer

from ottla.broker.handlers import k01_fetch_metadata, k59_fetch_snapshot
from ottla.broker.quorum import wire_server
from ottla.broker.quorum.settings import QuorumSettings
from ottla.model.errors import ErrorCode
from ottla.sim.env import World, simulate

SMALL = QuorumSettings(snapshot_bytes=1_500, retention_bytes=3_000, segment_bytes=3_000)
DESCRIBE = DescribeQuorumRequest(
    topics=(TopicData(topic_name="__cluster_metadata", partitions=(PartitionData(partition_index=0),)),)
)


@pytest.mark.parametrize("seed", range(3))
def test_voters_elect_a_leader_and_apply_what_it_commits(seed: int) -> None:
    async def check(cluster: NetworkCluster) -> None:
        await cluster.create("a")
        await cluster.agree()
        assert all("a" in quorum.image.topics for quorum in cluster.quorums.values())
        assert len({quorum.driver.node.leader_id for quorum in cluster.quorums.values()}) == 1

    in_network_cluster(check, seed)


@pytest.mark.parametrize("silent", [False, True])
def test_another_node_leads_after_the_leader_is_killed(silent: bool) -> None:
    async def check(cluster: NetworkCluster) -> None:
        await cluster.create("before")
        killed = await cluster.leader()
        await cluster.kill(killed, silent=silent)
        await cluster.create("after")
        assert await cluster.leader() != killed
        await cluster.start(killed, port=PORT + 1)  # at another address
        await cluster.agree()
        assert {"before", "after"} <= set(cluster.quorums[killed].image.topics)

    in_network_cluster(check)


def test_a_leader_that_is_cut_off_commits_nothing_and_follows_the_next_one() -> None:
    async def check(cluster: NetworkCluster) -> None:
        old = await cluster.leader()
        cluster.isolate(old)
        await asyncio.sleep(10)
        await cluster.create("kept")
        assert not cluster.quorums[old].driver.node.is_leader
        assert "kept" not in cluster.quorums[old].image.topics
        cluster.world.network.heal()
        await cluster.agree()
        assert "kept" in cluster.quorums[old].image.topics

    in_network_cluster(check)


def test_a_voter_that_shuts_down_hands_over_the_leadership() -> None:
    async def check(cluster: NetworkCluster) -> None:
        old = await cluster.leader()
        epoch = cluster.quorums[old].driver.node.epoch
        cluster.quorums[old].driver.resign()
        before = asyncio.get_running_loop().time()
        others = [node for node in VOTERS if node != old]
        while not any(cluster.quorums[node].driver.node.is_leader for node in others):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - before < 0.6, "EndQuorumEpoch saves the fetch timeout"
        assert max(cluster.quorums[node].driver.node.epoch for node in others) == epoch + 1
        await cluster.create("a")
        await cluster.agree()

    in_network_cluster(check)


def test_a_follower_that_missed_much_fetches_a_snapshot() -> None:
    async def check(cluster: NetworkCluster) -> None:
        follower = await cluster.follower()
        await cluster.kill(follower)
        for number in range(40):
            await cluster.create(f"t{number}")
        await asyncio.sleep(61)
        await cluster.create("last")
        await cluster.start(follower, controller_quorum_fetch_snapshot_max_bytes="300")
        await cluster.agree()
        assert cluster.quorums[follower].driver.node.log.start_offset > 0

    in_network_cluster(check, settings=SMALL)


def test_an_observer_follows_the_leader_and_is_described() -> None:
    async def check(cluster: NetworkCluster) -> None:
        await cluster.start(4)
        await cluster.create("a")
        await cluster.agree()
        leader = await cluster.leader()
        response = await cluster.client(leader).request(DESCRIBE)
        (partition,) = response.topics[0].partitions
        assert partition.error_code is ErrorCode.none
        assert (partition.leader_id, partition.high_watermark) == (
            leader,
            cluster.quorums[leader].driver.node.high_watermark,
        )
        assert [voter.replica_id for voter in partition.current_voters] == list(VOTERS)
        assert [observer.replica_id for observer in partition.observers] == [4]
        now_ms = cluster.world.clock.now_ms()
        for replica in (*partition.current_voters, *partition.observers):
            assert replica.log_end_offset == partition.high_watermark
            assert now_ms - 1000 < replica.last_caught_up_timestamp <= replica.last_fetch_timestamp <= now_ms
        addresses = {
            node.node_id: (node.listeners[0].name, node.listeners[0].host, node.listeners[0].port)
            for node in response.nodes
        }
        assert addresses == {voter: ("CONTROLLER", f"node{voter}", PORT) for voter in VOTERS}

    in_network_cluster(check)


def test_an_observer_that_has_gone_is_forgotten_after_five_minutes() -> None:
    async def check(cluster: NetworkCluster) -> None:
        await cluster.start(4)
        await cluster.agree()
        await cluster.kill(4)
        for waited_s, observers in ((200, [4]), (110, [])):
            await asyncio.sleep(waited_s)
            description = cluster.quorums[await cluster.leader()].describe_quorum()
            assert description is not None
            assert [observer.replica_id for observer in description.observers] == observers

    in_network_cluster(check)


def test_describe_quorum_shows_a_voter_that_is_down() -> None:
    async def check(cluster: NetworkCluster) -> None:
        follower = await cluster.follower()
        await cluster.kill(follower)
        died_ms = cluster.world.clock.now_ms()
        await asyncio.sleep(30)
        await cluster.create("a")
        response = await cluster.client(await cluster.leader()).request(DESCRIBE)
        (partition,) = response.topics[0].partitions
        states = {voter.replica_id: voter for voter in partition.current_voters}
        assert states[follower].log_end_offset < partition.high_watermark
        assert died_ms - 1000 <= states[follower].last_fetch_timestamp <= died_ms

    in_network_cluster(check)


def test_only_the_leader_describes_the_quorum() -> None:
    async def check(cluster: NetworkCluster) -> None:
        response = await cluster.client(await cluster.follower()).request(DESCRIBE)
        (partition,) = response.topics[0].partitions
        assert response.error_code is ErrorCode.none
        assert partition.error_code is ErrorCode.not_leader_or_follower
        assert "does not lead" in partition.error_message

    in_network_cluster(check)


@pytest.mark.parametrize("seed", range(6))
def test_acknowledged_commands_survive_kills_power_losses_and_resets(seed: int) -> None:
    async def check(cluster: NetworkCluster) -> None:
        random, network = cluster.world.random, cluster.world.network
        acknowledged: list[str] = []

        async def create() -> None:
            for number in range(40):
                await cluster.create(f"t{number}")
                acknowledged.append(f"t{number}")
                await asyncio.sleep(random.uniform(0, 1))

        work = asyncio.create_task(create())
        while not work.done():
            await asyncio.sleep(random.uniform(0, 3))
            active = [node for node, quorum in cluster.quorums.items() if quorum.machine is not None]
            victim = random.choice(active or VOTERS) if random.random() < 0.5 else random.choice(VOTERS)
            match random.randrange(3):
                case 0:
                    network.reset_streams(f"node{victim}")
                case 1:
                    cluster.isolate(victim)
                    await asyncio.sleep(random.uniform(0, 6))
                    network.heal()
                case 2:
                    await cluster.kill(victim, silent=random.random() < 0.5)
                    await asyncio.sleep(random.uniform(0, 4))
                    await cluster.start(victim, port=PORT + random.randrange(3))
        await work
        await cluster.agree()
        assert set(acknowledged) <= set(cluster.quorums[1].image.topics)

    in_network_cluster(
        check, seed, QuorumSettings(snapshot_bytes=3_000, retention_bytes=6_000, segment_bytes=4_000)
    )


# -- peers that cannot be trusted


def test_a_node_of_another_cluster_takes_no_part(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        cluster = NetworkCluster(world, QuorumSettings())
        await cluster.start(3, "another-cluster")
        await cluster.start(1)
        await cluster.start(2)
        await cluster.register_broker()
        await cluster.create("a")
        await cluster.agree(1, 2)
        await asyncio.sleep(20)
        stranger = cluster.quorums[3].driver.node
        assert not stranger.is_leader
        assert stranger.log.end_offset == 0
        assert "a" not in cluster.quorums[3].image.topics
        assert not cluster.failures

    with caplog.at_level(logging.ERROR):
        simulate(main, 1)
    assert any("node 3 belongs to another cluster" in record.getMessage() for record in caplog.records)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) <= 6


def answer_with(data: bytes) -> Any:
    def answer(asked: Asked) -> None:
        asked.connection.stream.send([data])

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        lambda asked: asked.respond(b""),
        lambda asked: asked.respond(bytes(200)),
        lambda asked: asked.respond(b"\xff" * 200),
        lambda asked: asked.connection.stream.close(),
        answer_with(b"\xff" * 100),
        answer_with(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda asked: None,
    ],
    ids=["nothing", "zeros", "ones", "close", "no frame", "http", "silence"],
)
def test_a_voter_that_sends_garbage_does_not_disturb_the_others(answer: Any) -> None:
    async def check(cluster: NetworkCluster) -> None:
        rogue_id = await cluster.follower()
        await cluster.kill(rogue_id)
        rogue = NodeServer(cluster.world, "rogue")
        rogue.answer = answer
        cluster.addresses[rogue_id] = await rogue.listen()
        for number in range(3):
            await cluster.create(f"t{number}")
            await asyncio.sleep(5)
        assert rogue.requests
        await cluster.agree()

    in_network_cluster(check)


def test_damaged_batches_do_not_reach_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    build = wire_server.build_fetch
    damaged: list[int] = []

    def damage(response: Any, endpoint: Any, log_start_offset: int) -> Any:
        if response.batches and len(damaged) < 50:
            damaged.append(response.batches[0].base_offset)
            last = response.batches[-1]
            changed = last._replace(data=last.data[:-1] + bytes([last.data[-1] ^ 1]))
            response = response._replace(batches=(*response.batches[:-1], changed))
        return build(response, endpoint, log_start_offset)

    async def check(cluster: NetworkCluster) -> None:
        monkeypatch.setattr(k01_fetch_metadata, "build_fetch", damage)
        await cluster.create("a")
        await cluster.agree()
        assert len(damaged) == 50
        assert all("a" in quorum.image.topics for quorum in cluster.quorums.values())

    in_network_cluster(check)


def test_a_damaged_snapshot_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    build = wire_server.build_fetch_snapshot
    damaged: list[int] = []

    def damage(response: Any, endpoint: Any) -> Any:
        if response.data and response.position == 0 and len(damaged) < 5:
            damaged.append(response.position)
            response = response._replace(data=response.data[:-1] + bytes([response.data[-1] ^ 1]))
        return build(response, endpoint)

    async def check(cluster: NetworkCluster) -> None:
        follower = await cluster.follower()
        await cluster.kill(follower)
        for number in range(40):
            await cluster.create(f"t{number}")
        await asyncio.sleep(61)
        await cluster.create("last")
        monkeypatch.setattr(k59_fetch_snapshot, "build_fetch_snapshot", damage)
        await cluster.start(follower)
        await cluster.agree()
        assert len(damaged) == 5
        assert "last" in cluster.quorums[follower].image.topics

    in_network_cluster(check, settings=SMALL)
    assert sum("is dropped" in record.getMessage() for record in caplog.records) == 5


def test_a_follower_whose_snapshot_is_gone_asks_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    build = wire_server.build_fetch_snapshot
    rejected: list[Any] = []

    def lose(response: Any, endpoint: Any) -> Any:
        if response.position > 0 and len(rejected) < 3:
            rejected.append(response.snapshot)
            response = response._replace(error=ErrorCode.snapshot_not_found, data=b"")
        return build(response, endpoint)

    async def check(cluster: NetworkCluster) -> None:
        follower = await cluster.follower()
        await cluster.kill(follower)
        for number in range(40):
            await cluster.create(f"t{number}")
        await asyncio.sleep(61)
        await cluster.create("last")
        monkeypatch.setattr(k59_fetch_snapshot, "build_fetch_snapshot", lose)
        before = asyncio.get_running_loop().time()
        await cluster.start(follower, controller_quorum_fetch_snapshot_max_bytes="300")
        await cluster.agree()
        assert len(rejected) == 3
        assert asyncio.get_running_loop().time() - before < 2, "it does not wait for the fetch timeout"

    in_network_cluster(check, settings=SMALL)
