"""Three voters on their own disks: what one of them acknowledged survives crashes, power losses and cut links."""

import asyncio
import errno
import uuid
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise

import pytest

from ottla.broker.quorum import loader, metadata_log
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshots import decode_snapshot
from ottla.core.controller.commands import CreateTopics, NewTopic
from ottla.core.raft.errors import NotLeader
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import FetchRequest, FetchSnapshotRequest
from ottla.core.raft.node import RaftNode
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import encode_record
from ottla.protocol.metadata_records.records import MetadataRecord, NoOpRecord
from ottla.sim.disk import DiskSpeed
from ottla.sim.env import World, simulate
from ottla.sim.quorum_clients import CommandClient, register_broker
from ottla.sim.quorum_cluster import QuorumCluster, QuorumNode

VOTERS = (1, 2, 3)


class Cluster(QuorumCluster):
    def __init__(self, world: World, settings: QuorumSettings) -> None:
        super().__init__(world, VOTERS, settings=settings)
        self.client = CommandClient(self, "client", world.derive())

    async def create(self, name: str) -> None:
        acknowledged = self.client.acknowledged
        await self.client.create(name)
        assert self.client.acknowledged == acknowledged + 1

    def leader(self) -> QuorumNode:
        (leader,) = self.active_nodes()
        return leader

    def follower(self) -> QuorumNode:
        return next(node for node in self.nodes.values() if not node.is_active)

    def isolate(self, node: QuorumNode) -> None:
        for other in self.nodes.values():
            if other is not node:
                self.world.network.partition(node.host, other.host)

    def quorum(self, node_id: int) -> Quorum:
        quorum = self.nodes[node_id].quorum
        assert quorum is not None
        return quorum

    async def agree(self) -> None:
        """Waits until all nodes have applied the same records."""
        await until(lambda: len({self.quorum(node_id).image.offset for node_id in VOTERS}) == 1)
        assert self.quorum(1).image == self.quorum(2).image == self.quorum(3).image


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(300):
        if condition():
            return
        await asyncio.sleep(0.1)
    pytest.fail("the condition did not hold within 30 s of virtual time")


def in_cluster(
    test: Callable[[Cluster], Awaitable[None]], seed: int = 1, settings: QuorumSettings | None = None
) -> None:
    async def main(world: World) -> None:
        cluster = Cluster(world, settings or QuorumSettings())
        await cluster.start()
        await register_broker(cluster, world.derive())
        await test(cluster)
        cluster.checkers.raise_violation()

    simulate(main, seed)


def new_topic(name: str) -> CreateTopics:
    return CreateTopics((NewTopic(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), 1, 1),))


def test_all_nodes_apply_what_the_leader_commits() -> None:
    async def check(cluster: Cluster) -> None:
        await cluster.create("a")
        await cluster.agree()
        assert all("a" in cluster.quorum(node_id).image.topics for node_id in VOTERS)
        leader_id = cluster.leader().node_id
        description = cluster.quorum(leader_id).describe_quorum()
        assert description is not None
        assert description.leader_id == leader_id
        assert {voter.replica_id: voter.log_end_offset for voter in description.voters} == dict.fromkeys(
            VOTERS, description.high_watermark
        )
        followers = [cluster.quorum(node_id) for node_id in VOTERS if node_id != leader_id]
        assert [quorum.describe_quorum() for quorum in followers] == [None, None]

    in_cluster(check)


def test_a_follower_rejects_commands_and_names_the_leader() -> None:
    async def check(cluster: Cluster) -> None:
        with pytest.raises(KafkaError) as rejected:
            await cluster.follower().submit(new_topic("a"))
        assert rejected.value.code is ErrorCode.not_controller
        assert f"node {cluster.leader().node_id} is" in rejected.value.message

    in_cluster(check)


def test_a_leader_without_a_majority_commits_nothing_and_gives_way() -> None:
    async def check(cluster: Cluster) -> None:
        old = cluster.leader()
        cluster.isolate(old)
        lost = asyncio.create_task(old.submit(new_topic("lost")))
        await until(lambda: not old.is_active)
        with pytest.raises(KafkaError) as rejected:
            await lost
        assert rejected.value.code is ErrorCode.not_controller
        await cluster.create("kept")
        topics = cluster.quorum(old.node_id).image.topics
        assert "lost" not in topics
        assert "kept" not in topics
        cluster.world.network.heal()
        await cluster.agree()
        topics = cluster.quorum(old.node_id).image.topics
        assert "kept" in topics
        assert "lost" not in topics

    in_cluster(check)


async def deposed_while_it_publishes(cluster: Cluster) -> tuple[QuorumNode, "asyncio.Task[object]"]:
    """The node that led, and the command that it could not commit. It follows the next leader, whose records have
    replaced its own, and has still to publish an image of the time when it led.
    """
    old = cluster.leader()
    old.publish_s = 20.0
    publishing = asyncio.create_task(old.submit(new_topic("slow")))
    await until(lambda: "slow" in cluster.quorum(old.node_id).image.topics)
    cluster.isolate(old)
    lost = asyncio.create_task(old.submit(new_topic("lost")))
    old_node = cluster.quorum(old.node_id).driver.node
    await until(lambda: not old_node.is_leader)
    lost_end = old_node.log.end_offset
    for number in range(5):
        await cluster.create(f"kept{number}")
    cluster.world.network.heal()
    await until(lambda: old_node.high_watermark > lost_end)
    assert not publishing.done() or publishing.exception() is not None
    return old, lost


def test_a_deposed_leader_does_not_publish_what_it_did_not_commit() -> None:
    async def check(cluster: Cluster) -> None:
        old, lost = await deposed_while_it_publishes(cluster)
        with pytest.raises(KafkaError) as rejected:
            await asyncio.wait_for(lost, 1)
        assert rejected.value.code is ErrorCode.not_controller
        assert not old.is_active
        old.publish_s = 0.0
        await cluster.agree()
        assert "lost" not in cluster.quorum(old.node_id).image.topics

    in_cluster(check)


def test_a_deposed_leader_proposes_nothing_in_the_next_epoch() -> None:
    async def check(cluster: Cluster) -> None:
        driver = cluster.quorum(cluster.leader().node_id).driver
        end_offset = driver.node.log.end_offset
        with pytest.raises(NotLeader, match="leads epoch"):
            driver.propose([b"a"], driver.node.epoch - 1)
        assert driver.node.log.end_offset == end_offset

    in_cluster(check)


async def follower_that_missed_much(cluster: Cluster) -> QuorumNode:
    """It is down, and the leader has removed the records that it needs next."""
    follower = cluster.follower()
    await follower.lose_power()
    for number in range(40):
        await cluster.create(f"t{number}")
    await asyncio.sleep(61)
    await cluster.create("last")
    return follower


def test_a_node_that_missed_much_gets_a_snapshot() -> None:
    async def check(cluster: Cluster) -> None:
        follower = await follower_that_missed_much(cluster)
        await follower.start()
        await cluster.agree()
        assert cluster.quorum(follower.node_id).driver.node.log.start_offset > 0

    small = QuorumSettings(snapshot_bytes=1_500, retention_bytes=3_000, segment_bytes=3_000)
    in_cluster(check, settings=small)


def test_a_node_that_received_a_damaged_snapshot_fetches_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    rejected: list[str] = []

    def decode_once(data: bytes, path: str) -> Iterator[MetadataRecord]:
        if not rejected:
            rejected.append(path)
            raise KafkaError(ErrorCode.kafka_storage_error, f"{path} is damaged")
        return decode_snapshot(data, path)

    async def check(cluster: Cluster) -> None:
        follower = await follower_that_missed_much(cluster)
        monkeypatch.setattr(metadata_log, "decode_snapshot", decode_once)
        await follower.start()
        began_s = asyncio.get_running_loop().time()
        await cluster.agree()
        assert len(rejected) == 1
        assert asyncio.get_running_loop().time() - began_s < 1, "it waited for an election"

    in_cluster(
        check, settings=QuorumSettings(snapshot_bytes=1_500, retention_bytes=3_000, segment_bytes=3_000)
    )


def test_jumps_of_the_wall_clock_do_not_end_the_leadership() -> None:
    async def check(cluster: Cluster) -> None:
        leader, epoch = cluster.leader(), cluster.quorum(1).driver.node.epoch
        for node, jump_ms in zip(cluster.nodes.values(), (3_600_000, -3_600_000, 60_000), strict=True):
            cluster.world.clock_of(node.host).jump(jump_ms)
        await asyncio.sleep(10)
        await cluster.create("a")
        assert cluster.leader() is leader
        assert cluster.quorum(1).driver.node.epoch == epoch

    in_cluster(check)


def test_a_leader_that_was_paused_learns_of_the_next_one_and_acknowledges_nothing() -> None:
    async def check(cluster: Cluster) -> None:
        old = cluster.leader()
        old.pause()
        late = asyncio.create_task(old.submit(new_topic("late")))
        await until(lambda: cluster.active_nodes() != [old])
        old.resume()
        with pytest.raises(KafkaError) as rejected:
            await late
        assert rejected.value.code is ErrorCode.not_controller
        await until(lambda: not old.is_active)
        assert cluster.leader() is not old

    in_cluster(check)


async def next_active(cluster: Cluster, old: QuorumNode, within_s: float) -> QuorumNode:
    for _ in range(int(within_s * 100)):
        others = [node for node in cluster.active_nodes() if node is not old]
        if others:
            return others[0]
        await asyncio.sleep(0.01)
    pytest.fail(f"no other node was active within {within_s} s of virtual time")


def test_a_leader_whose_disk_hangs_is_replaced_and_acknowledges_nothing() -> None:
    async def check(cluster: Cluster) -> None:
        old = cluster.leader()
        old.disk.speed = DiskSpeed(sync_ms=60_000)
        late = asyncio.create_task(old.submit(new_topic("late")))
        new = await next_active(cluster, old, within_s=10)
        await new.submit(new_topic("kept"))
        assert not late.done()
        old.disk.speed = DiskSpeed()
        with pytest.raises(KafkaError) as rejected:
            await late
        assert rejected.value.code is ErrorCode.not_controller
        await until(lambda: not old.is_active)
        await cluster.create("last")
        await cluster.agree()
        assert "kept" in cluster.quorum(old.node_id).image.topics

    in_cluster(check)


def test_a_leader_whose_log_has_failed_answers_no_fetch_and_is_replaced() -> None:
    async def check(cluster: Cluster) -> None:
        old = cluster.leader()
        quorum = cluster.quorum(old.node_id)
        node = quorum.driver.node
        parked = asyncio.create_task(
            quorum.driver.fetch(fetch_at_end(node, cluster.follower()), max_bytes=1_000, max_wait_ms=60_000)
        )
        old.has_disk_fault = True
        old.disk.fail(old.log_dir, errno.ENOSPC)
        with pytest.raises(KafkaError) as rejected:
            await old.submit(new_topic("lost"))
        assert rejected.value.code is ErrorCode.kafka_storage_error
        assert (quorum.is_active, quorum.machine) == (False, None)
        with pytest.raises(ConnectionError):
            await parked
        with pytest.raises(ConnectionError):
            await quorum.driver.fetch(fetch_at_end(node, cluster.follower()), max_bytes=1_000, max_wait_ms=0)
        snapshot = FetchSnapshotRequest(node.epoch, cluster.follower().node_id, OffsetAndEpoch(1, 1), 0)
        with pytest.raises(ConnectionError):
            await quorum.driver.fetch_snapshot(snapshot, max_bytes=1_000)
        await next_active(cluster, old, within_s=4)

    in_cluster(check)


def fetch_at_end(leader: RaftNode, follower: QuorumNode) -> FetchRequest:
    """A fetch for which the leader has nothing to send."""
    end = leader.log.end
    return FetchRequest(leader.epoch, follower.node_id, end.offset, end.epoch, leader.high_watermark)


def test_a_leader_whose_disk_is_slow_stays_the_leader() -> None:
    async def check(cluster: Cluster) -> None:
        leader = cluster.leader()
        leader.disk.speed = DiskSpeed(sync_ms=300)
        for number in range(10):
            await cluster.create(f"t{number}")
        assert cluster.leader() is leader

    in_cluster(check)


def test_a_fetch_that_waits_gets_records_as_soon_as_they_are_written() -> None:
    async def main(world: World) -> None:
        cluster = QuorumCluster(world, (1, 2))
        await cluster.start()
        await register_broker(cluster, world.derive())
        await asyncio.sleep(2)
        (leader,) = cluster.active_nodes()
        follower = next(node for node in cluster.nodes.values() if node is not leader)
        assert leader.quorum is not None
        driver = leader.quorum.driver
        end, high_watermark = driver.node.log.end, driver.node.high_watermark
        leader.disk.speed = DiskSpeed(sync_ms=300)
        began_s = asyncio.get_running_loop().time()
        driver.propose([encode_record(NoOpRecord(), 25)], driver.node.epoch)
        # Raft has the record already, the file has not.
        response = await driver.fetch(
            FetchRequest(driver.node.epoch, follower.node_id, end.offset, end.epoch, high_watermark),
            max_bytes=1_000,
            max_wait_ms=500,
        )
        assert asyncio.get_running_loop().time() - began_s < 0.1
        assert [batch.base_offset for batch in response.batches] == [end.offset]
        assert response.high_watermark == high_watermark
        assert driver.node.high_watermark == high_watermark, (
            "it is committed before the leader has flushed it"
        )
        leader.disk.speed = DiskSpeed()
        await until(lambda: driver.node.high_watermark > end.offset)
        cluster.checkers.raise_violation()

    simulate(main, 1)


def test_an_observer_follows_and_never_votes() -> None:
    async def main(world: World) -> None:
        cluster = QuorumCluster(world, VOTERS, (4, 5))
        await cluster.start()
        await register_broker(cluster, world.derive())
        await cluster.nodes[1].kill()
        await cluster.nodes[2].kill()
        await asyncio.sleep(60)
        assert not cluster.active_nodes()
        await cluster.nodes[1].start()
        client = CommandClient(cluster, "client", world.derive())
        await client.create("a")
        assert client.acknowledged == 1
        await asyncio.sleep(5)
        for observer in (4, 5):
            quorum = cluster.nodes[observer].quorum
            assert quorum is not None
            assert "a" in quorum.image.topics
        cluster.checkers.raise_violation()

    simulate(main, 1)


def test_very_many_records_reach_the_subscribers_in_several_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "RECORDS_PER_IMAGE", 10)

    async def check(cluster: Cluster) -> None:
        follower = cluster.follower()
        quorum, leader = cluster.quorum(follower.node_id), cluster.leader()
        offsets = [quorum.image.offset]
        quorum.subscribe(lambda old, new: offsets.append(new.offset))
        topics = [NewTopic(f"t{number}", uuid.UUID(int=number << 64), 1, 1) for number in range(1, 60)]
        commands = [cluster.quorum(leader.node_id).submit(CreateTopics((topic,))) for topic in topics]
        await asyncio.gather(*commands)
        await cluster.agree()
        assert offsets[-1] - offsets[0] >= 2 * len(topics)
        assert max(after - before for before, after in pairwise(offsets)) <= 12

    in_cluster(check)
