"""The failures of replication that have names, step by step, on clusters of three simulated nodes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

from ottla.broker.connection import ClientConnection
from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.partition_change import RECOVERED
from ottla.core.controller.partition_commands import AlteredPartition, AlterPartition, AlterPartitionTopic
from ottla.core.partition.follower import PartitionFollower
from ottla.model.errors import ErrorCode
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla.records.header import read_header
from ottla.records.records import Record, build_batch
from ottla.sim.client import SimClient
from ottla.sim.cluster import Cluster
from ottla.sim.cluster_audit import ClusterAudit
from ottla.sim.cluster_client import new_client
from ottla.sim.cluster_programs import delete_topic_with_retries
from ottla.sim.env import World, simulate
from ottla.sim.group_client import Topic
from ottla.sim.history import Violation
from ottla.sim.network import SimStream
from ottla.sim.partition_clients import RETRIABLE, create_topic_with_retries, records_of

_WAIT_S = 60.0


class Scenario:
    """A cluster with the topic `journal`: one partition, three replicas, min.insync.replicas 2."""

    def __init__(self, world: World, controllers: int, config: Mapping[str, str]) -> None:
        self.world = world
        self.cluster = Cluster(world, 3, controllers, config)
        world.bootstrap = self.cluster.bootstrap
        self.audit = ClusterAudit(self.cluster)
        self.client: SimClient = new_client(world, "client", "client", 4.0)
        self.acknowledged: list[bytes] = []
        self.log_start = 0
        self.topic: Topic

    async def start(self) -> None:
        await self.cluster.start()
        topic_id = await create_topic_with_retries(self.client, "journal", 1, {}, 3)
        self.topic = Topic("journal", topic_id, 1)
        await self.wait_for(lambda: len(self.isr) == 3)

    @property
    def leader(self) -> int:
        return self.cluster.leader_of("journal", 0)

    @property
    def isr(self) -> tuple[int, ...]:
        return self.cluster.isr_of("journal", 0)

    @property
    def followers(self) -> list[int]:
        return [node.node_id for node in self.cluster.brokers if node.node_id != self.leader]

    def high_watermark(self, node_id: int) -> int:
        return self.cluster.replicas_of("journal", 0)[node_id].role.high_watermark

    def end_offset(self, node_id: int) -> int:
        return self.cluster.replicas_of("journal", 0)[node_id].log.log_end_offset

    def leads(self, node_id: int) -> bool:
        """False also while the node has not opened the partition yet."""
        hosted = self.cluster.replicas_of("journal", 0).get(node_id)
        return hosted is not None and hosted.is_led

    def batch_ends(self, node_id: int) -> list[int]:
        """The offset after each batch of the log, as the replica has it."""
        data, position, ends = self.log_bytes(node_id), 0, []
        while position < len(data):
            header = read_header(data, position)
            ends.append(header.next_offset)
            position += header.size
        return ends

    def log_bytes(self, node_id: int) -> bytes:
        log = self.cluster.replicas_of("journal", 0)[node_id].log
        return bytes(log.read(0, 1 << 20, end_offset=log.log_end_offset, at_least_one=True).region.read())

    def follows(self, node_id: int, leader_id: int) -> bool:
        role = self.cluster.replicas_of("journal", 0)[node_id].role
        return isinstance(role, PartitionFollower) and role.leader_id == leader_id

    async def wait_for(self, condition: Callable[[], bool], *, audited: bool = True) -> None:
        async with asyncio.timeout(_WAIT_S):
            while not condition():
                if audited:
                    self.audit.check()
                await asyncio.sleep(0.01)

    def forget_high_watermarks(self) -> None:
        """After a failure that may lose acknowledged records. What is committed from now on must stay."""
        self.audit.close()
        self.audit = ClusterAudit(self.cluster)

    async def try_send(self, value: bytes) -> ErrorCode | None:
        """None if there was no response."""
        batch = build_batch([Record(0, self.world.clock.now_ms(), value, None)])
        try:
            response = await self.client.produce(self.topic.topic_id, 0, batch)
        except OSError:
            return None
        if response.error_code == ErrorCode.none:
            self.acknowledged.append(value)
            self.audit.check()
        return response.error_code

    async def send_batch(self, values: list[bytes], codec: int, acks: int = -1) -> int:
        """Returns the first offset."""
        now_ms = self.world.clock.now_ms()
        records = [Record(index, now_ms, value, None) for index, value in enumerate(values)]
        batch = build_batch(records, codec=codec)
        async with asyncio.timeout(_WAIT_S):
            while True:
                with suppress(OSError):
                    response = await self.client.produce(self.topic.topic_id, 0, batch, acks)
                    if response.error_code == ErrorCode.none:
                        self.acknowledged += values
                        return response.base_offset
                    assert response.error_code in RETRIABLE
                await asyncio.sleep(0.2)

    async def send(self, value: bytes) -> None:
        """Retries until it is acknowledged."""
        async with asyncio.timeout(_WAIT_S):
            while await self.try_send(value) != ErrorCode.none:  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    async def read(self) -> list[bytes | None]:
        """The keys of all records. Retries while the client has old metadata, or asks a broker that is down."""
        response = None
        async with asyncio.timeout(_WAIT_S):
            while response is None or response.error_code in RETRIABLE:
                with suppress(OSError):
                    response = await self.client.fetch(self.topic.topic_id, 0, self.log_start)
                await asyncio.sleep(0.2)
        assert response.error_code == ErrorCode.none
        return [record.key for record in records_of(response)]

    async def delete_records(self, offset: int) -> None:
        partition = DeleteRecordsPartition(partition_index=0, offset=offset)
        topic = DeleteRecordsTopic(name="journal", partitions=(partition,))
        response = await self.client.request(
            DeleteRecordsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        )
        assert response.topics[0].partitions[0].error_code == ErrorCode.none
        self.log_start = offset

    async def reassign(self, *replicas: int) -> None:
        """Returns when the replicas are in sync, and the others are gone."""
        partition = ReassignablePartition(partition_index=0, replicas=replicas)
        topic = ReassignableTopic(name="journal", partitions=(partition,))
        request = AlterPartitionReassignmentsRequest(topics=(topic,), timeout=timedelta(seconds=5))
        response = await self.client.request(request)
        assert response.responses[0].partitions[0].error_code == ErrorCode.none
        await self.wait_for(lambda: set(self.isr) == set(replicas))
        await self.wait_for(lambda: set(self.cluster.replicas_of("journal", 0)) == set(replicas))

    def isolate(self, node_id: int) -> None:
        for node in self.cluster.nodes.values():
            if node.node_id != node_id:
                self.world.network.partition(node.host, f"node-{node_id}")

    async def check_nothing_is_lost(self) -> None:
        """After healing: all replicas are equal, and have every acknowledged record."""
        self.world.network.heal()
        for node in self.cluster.nodes.values():
            if not node.is_up:
                node.start()
        await self.cluster.ready()
        await self.wait_for(lambda: len(self.isr) == 3)
        await self.send(b"last")
        await self.wait_for(self.audit.has_converged)
        self.audit.check_converged()
        found = await self.read()
        assert [value for value in self.acknowledged if value not in found] == []


def run_scenario(
    play: Callable[[Scenario], Awaitable[None]],
    seed: int = 1,
    *,
    controllers: int = 0,
    config: Mapping[str, str] | None = None,
) -> None:
    """Without separate `controllers`, each node is one."""

    async def main(world: World) -> None:
        scenario = Scenario(world, controllers, config or {})
        try:
            await scenario.start()
            await play(scenario)
            await scenario.check_nothing_is_lost()
        finally:
            scenario.audit.close()
            await scenario.cluster.kill()

    simulate(main, seed)


async def elect_twice(scenario: Scenario) -> None:
    """A follower learns the high watermark one fetch later than the leader. Here it never does: the leader dies right
    after an acknowledgement, and so does the next one, before the follower could fetch from it.
    """
    await scenario.send(b"before")
    leader, (one, other) = scenario.leader, scenario.followers
    scenario.world.network.partition(f"node-{one}", f"node-{other}")
    await scenario.send(b"acknowledged")
    await scenario.cluster.nodes[leader].kill()
    await scenario.wait_for(lambda: scenario.leader in (one, other))
    second = scenario.leader
    follower = one + other - second
    await scenario.wait_for(lambda: scenario.follows(follower, second))
    await scenario.cluster.nodes[second].kill()
    await scenario.wait_for(lambda: scenario.leader == follower)
    scenario.cluster.nodes[leader].start()
    await scenario.send(b"after")


async def restart_without_the_high_watermark(scenario: Scenario) -> None:
    """The follower of two replicas has m2, but does not know that it is committed. It restarts, and begins to follow.
    Then the leader dies.
    """
    leader, (follower, other) = scenario.leader, scenario.followers
    nodes, network = scenario.cluster.nodes, scenario.world.network
    await scenario.reassign(leader, follower)
    await scenario.send(b"m1")
    await scenario.wait_for(lambda: scenario.high_watermark(follower) == 1)
    network.slow(
        f"node-{leader}", f"node-{follower}", 100
    )  # so that the follower does not fetch twice at once
    sending = asyncio.create_task(scenario.send(b"m2"))
    await scenario.wait_for(lambda: scenario.end_offset(follower) == 2)
    network.cut(f"node-{leader}", f"node-{follower}")  # its next fetch arrives, the response does not
    await sending
    assert (scenario.high_watermark(leader), scenario.high_watermark(follower)) == (2, 1)
    await nodes[follower].stop()
    nodes[follower].start()
    await scenario.wait_for(lambda: nodes[follower].broker is not None)
    await scenario.wait_for(lambda: scenario.follows(follower, leader))
    assert scenario.high_watermark(follower) == 1
    assert partition_of(scenario).eligible_leader_replicas == (follower,)
    await nodes[leader].kill()
    await scenario.wait_for(lambda: scenario.leads(follower))
    scenario.audit.check()
    assert scenario.end_offset(follower) == 2
    network.heal()
    nodes[leader].start()
    await scenario.wait_for(lambda: nodes[leader].broker is not None)
    await scenario.reassign(leader, follower, other)
    assert await scenario.read() == [b"m1", b"m2"]


async def deliver_a_late_expansion(scenario: Scenario) -> None:
    """A follower starts again, without the last records, while a request that adds it to the ISR is on its way. It
    names the follower's last registration. Then the other replicas die.
    """
    leader, (lagging, other) = scenario.leader, scenario.followers
    nodes, image = scenario.cluster.nodes, scenario.cluster.image
    old_epoch = image().brokers[lagging].epoch
    for node_id in (leader, other):
        scenario.world.network.partition(f"node-{lagging}", f"node-{node_id}")
    await scenario.wait_for(lambda: lagging not in scenario.isr)
    await scenario.send(b"acknowledged")
    await nodes[lagging].kill()
    nodes[lagging].start()
    await scenario.wait_for(
        lambda: image().brokers[lagging].epoch != old_epoch and image().brokers[lagging].is_active
    )
    before = image().topics["journal"].partitions[0]
    isr = [(each, image().brokers[each].epoch) for each in before.isr]
    expansion = AlteredPartition(
        0, before.leader_epoch, (*isr, (lagging, old_epoch)), RECOVERED, before.partition_epoch
    )
    topics = (AlterPartitionTopic(scenario.topic.topic_id, (expansion,)),)
    controller = scenario.cluster.active_controllers()[0].quorum
    assert controller is not None
    await controller.submit(AlterPartition(leader, image().brokers[leader].epoch, topics))
    for node_id in (other, leader):
        await nodes[node_id].kill()
    await scenario.wait_for(lambda: scenario.leader in (lagging, -1))
    await asyncio.sleep(1)  # if it was elected, it leads soon
    scenario.audit.check()


async def diverge_in_a_power_loss(scenario: Scenario, codec: int = LZ4) -> None:
    """All nodes lose power. The replica that has lost the most leads next, in a new epoch: its new batches have the
    offsets of those that the others still have, but not their boundaries.
    """
    cluster, nodes = scenario.cluster, scenario.cluster.nodes
    # The controller fences the brokers in the order of their ids, so the last one becomes the last known leader.
    *others, last = (node.node_id for node in cluster.brokers)
    logs = {node_id: hosted.log for node_id, hosted in cluster.replicas_of("journal", 0).items()}
    for step, flushed in enumerate(([last, *others], others, others[1:])):
        await scenario.send_batch(numbered(b"lost-%d" % step if step else b"flushed", 4 + 2 * step), codec)
        await scenario.wait_for(lambda: len({log.log_end_offset for log in logs.values()}) == 1)
        for node_id in flushed:
            logs[node_id].flush()
    for node in nodes.values():
        node.disk.loses_all_unsynced = True
        await node.lose_power()
    for node in nodes.values():
        if not node.is_broker:
            node.start()
    await scenario.wait_for(lambda: "journal" in cluster.image().topics and scenario.leader == -1)
    assert partition_of(scenario).last_known_elr == (last,)
    scenario.acknowledged = numbered(b"flushed", 4)
    for node_id in others:
        scenario.world.network.partition(f"node-{last}", f"node-{node_id}")
    for node_id in logs:
        nodes[node_id].start()
    # A high watermark in a checkpoint may be that of a record that the new leader has lost: nothing is audited yet.
    await scenario.wait_for(lambda: scenario.leads(last), audited=False)
    for number, size in enumerate((3, 6, 6, 6)):
        await scenario.send_batch(numbered(b"m3-%d" % number, size), codec, acks=1)
    await scenario.wait_for(lambda: len(cluster.replicas_of("journal", 0)) == 3, audited=False)
    ends = {node_id: scenario.batch_ends(node_id) for node_id in logs}
    assert ends == {others[0]: [4, 10], others[1]: [4, 10, 18], last: [4, 7, 13, 19, 25]}
    scenario.world.network.heal()
    try:
        await scenario.wait_for(lambda: len({scenario.log_bytes(each) for each in logs}) == 1, audited=False)
    except TimeoutError:
        raise Violation(f"divergence: the replicas have different logs\n{cluster.describe()}") from None
    assert scenario.batch_ends(last) == ends[last]
    scenario.forget_high_watermarks()


def numbered(prefix: bytes, count: int) -> list[bytes]:
    return [b"%s-%d" % (prefix, number) for number in range(count)]


async def truncate_a_waiting_produce(scenario: Scenario) -> None:
    """A client waits for a record on a leader that was replaced. The leader truncates it, and follows the next one,
    whose records have the same offsets.
    """
    await scenario.send(b"before")
    leader, value = scenario.leader, b"truncated"
    patient = new_client(scenario.world, "client", "patient", _WAIT_S)
    batch = build_batch([Record(0, scenario.world.clock.now_ms(), value, None)])
    await patient.fetch(scenario.topic.topic_id, 0, 0)  # so that it knows the leader
    scenario.isolate(leader)
    waiting = asyncio.create_task(patient.produce(scenario.topic.topic_id, 0, batch))
    await scenario.wait_for(lambda: scenario.leader not in (leader, -1))
    for number in range(3):
        await scenario.send(b"after-%d" % number)
    scenario.world.network.heal()
    if (await waiting).error_code == ErrorCode.none:
        scenario.acknowledged.append(value)


def test_a_truncated_record_is_not_acknowledged() -> None:
    run_scenario(truncate_a_waiting_produce, controllers=3)


def test_a_late_request_does_not_add_a_restarted_follower_to_the_isr() -> None:
    """KIP-903."""
    run_scenario(deliver_a_late_expansion, controllers=3)


def test_high_watermark_truncation_followed_by_immediate_leader_election_loses_nothing() -> None:
    """As Kafka did before KIP-101, when followers truncated to their high watermark."""
    for seed in range(3):
        run_scenario(elect_twice, seed, controllers=3)


def test_high_watermark_truncation_of_a_restarted_follower_that_is_elected_loses_nothing() -> None:
    """The same as 003 tells it: the follower restarts between its fetch of m2 and its election."""
    for seed in range(3):
        run_scenario(restart_without_the_high_watermark, seed, controllers=3)


def test_replicas_that_diverged_in_multiple_hard_failures_converge_to_one_history() -> None:
    """Each node in turn leads alone, without the others, and appends what is never acknowledged."""

    async def fail(scenario: Scenario, number: int) -> None:
        await scenario.send(b"before-%d" % number)
        leader = scenario.leader
        scenario.isolate(leader)
        sends = [asyncio.create_task(scenario.try_send(b"lost-%d-%d" % (number, each))) for each in range(3)]
        await scenario.wait_for(lambda: scenario.end_offset(leader) > scenario.high_watermark(leader))
        await scenario.cluster.nodes[leader].kill()
        await asyncio.gather(*sends)
        scenario.world.network.heal()
        await scenario.wait_for(lambda: scenario.leader not in (leader, -1))
        await scenario.send(b"after-%d" % number)
        scenario.cluster.nodes[leader].start()
        follower = scenario.cluster.nodes[next(each for each in scenario.followers if each != leader)]
        await follower.kill()
        follower.start()
        await scenario.wait_for(lambda: len(scenario.isr) == 3)

    async def play(scenario: Scenario) -> None:
        for number in range(3):
            await fail(scenario, number)

    for seed in range(3):
        run_scenario(play, seed)


def test_replica_divergence_on_restart_after_multiple_hard_failures() -> None:
    """003 and KIP-101: loss is allowed if all replicas fail, but not divergence, nor a replica that cannot go on."""
    for seed, codec in enumerate((GZIP, SNAPPY, LZ4, ZSTD)):
        run_scenario(partial(diverge_in_a_power_loss, codec=codec), seed, controllers=3)


def test_an_isr_that_shrinks_to_a_lone_leader_that_then_dies_loses_nothing() -> None:
    """min.insync.replicas stops acknowledgements, and the eligible leader replicas have the rest (KIP-966)."""

    async def play(scenario: Scenario) -> None:
        await scenario.send(b"before")
        leader, followers = scenario.leader, scenario.followers
        for follower in followers:
            await scenario.cluster.nodes[follower].stop()
        await scenario.wait_for(lambda: scenario.isr == (leader,))
        assert await scenario.try_send(b"refused") == ErrorCode.not_enough_replicas
        await scenario.cluster.nodes[leader].lose_power()
        scenario.cluster.nodes[leader].start()
        for follower in followers:
            scenario.cluster.nodes[follower].start()
        await scenario.wait_for(lambda: scenario.leader in followers)
        await scenario.send(b"after")

    for seed in range(3):
        run_scenario(play, seed, controllers=3)


def test_a_live_broker_is_not_fenced_when_the_connection_of_its_heartbeats_is_reset() -> None:
    """The controller takes a closed connection for a dead broker, after a grace below the interval of heartbeats."""

    async def play(scenario: Scenario) -> None:
        (controller,) = scenario.cluster.active_controllers()
        assert controller.quorum is not None
        assert controller.quorum.machine is not None
        sessions = controller.quorum.machine._sessions
        fenced: list[int] = []

        def note_fenced(old: MetadataImage, new: MetadataImage) -> None:
            fenced.extend(broker.broker_id for broker in new.brokers.values() if broker.fenced)

        controller.quorum.subscribe(note_fenced)
        for _ in range(10):
            session = sessions.get(scenario.leader)
            assert session is not None
            assert isinstance(session.connection, ClientConnection)
            assert isinstance(session.connection.stream, SimStream)
            session.connection.stream.reset("reset by the test")
            await asyncio.sleep(2 + 2 * scenario.world.random.random())
        assert fenced == []

    run_scenario(play, controllers=3, config={"broker.heartbeat.interval.ms": "2000"})


def test_a_consumer_with_a_committed_leader_epoch_does_not_fetch_from_a_former_leader() -> None:
    """KIP-320. A leader that is cut off serves fetches until it knows of the next leader, but not their records."""

    async def play(scenario: Scenario) -> None:
        await scenario.send(b"before")
        leader, topic_id = scenario.leader, scenario.topic.topic_id
        consumer = new_client(scenario.world, "client", "consumer", 4.0)
        await consumer.fetch(topic_id, 0, 0)  # so that it knows the leader
        scenario.isolate(leader)
        await scenario.wait_for(lambda: scenario.leader not in (leader, -1))
        while scenario.end_offset(scenario.leader) <= scenario.end_offset(leader):
            await scenario.send(b"after")
        position = scenario.end_offset(scenario.leader)
        assert (await consumer.fetch(topic_id, 0, position)).error_code == ErrorCode.offset_out_of_range
        epoch = scenario.cluster.image().topics["journal"].partitions[0].leader_epoch
        consumer.see_leader_epoch(topic_id, 0, epoch)
        errors: list[ErrorCode] = []
        async with asyncio.timeout(_WAIT_S):
            while ErrorCode.none not in errors:
                try:
                    errors.append((await consumer.fetch(topic_id, 0, position)).error_code)
                except OSError:
                    await asyncio.sleep(0.2)
        assert ErrorCode.offset_out_of_range not in errors

    for seed in range(3):
        run_scenario(play, seed, controllers=3)


def test_a_partition_whose_log_starts_inside_a_batch_is_reassigned() -> None:
    """DeleteRecords has moved the start of the log into a batch: a new replica gets the whole batch (KIP-107)."""

    async def play(scenario: Scenario) -> None:
        values = [b"%d" % number for number in range(10)]
        now_ms = scenario.world.clock.now_ms()
        batch = build_batch([Record(index, now_ms, value, None) for index, value in enumerate(values)])
        response = await scenario.client.produce(scenario.topic.topic_id, 0, batch)
        assert (response.error_code, response.base_offset) == (ErrorCode.none, 0)
        await scenario.delete_records(5)
        scenario.acknowledged += values[5:]
        leader, (other, new) = scenario.leader, scenario.followers
        await scenario.reassign(leader, other)
        await scenario.reassign(leader, other, new)
        replica = scenario.cluster.replicas_of("journal", 0)[new]
        await scenario.wait_for(lambda: replica.role.high_watermark == 10)
        assert (replica.log.log_start_offset, replica.log.segments.base_offsets) == (5, [0])

    for seed in range(3):
        run_scenario(play, seed)


def test_a_lone_leader_shows_what_was_committed_before_it_crashed() -> None:
    """It is elected as the last known leader (KIP-966). Under min.insync.replicas its high watermark does not move."""

    async def play(scenario: Scenario) -> None:
        nodes, leader, followers = scenario.cluster.nodes, scenario.leader, scenario.followers
        for number in range(5):
            await scenario.send(b"%d" % number)
        await asyncio.sleep(6)  # the high watermark is checkpointed every five seconds
        for follower in followers:
            await nodes[follower].kill()
        await scenario.wait_for(lambda: scenario.isr == (leader,))
        # A follower that comes back after a crash is not eligible any more, until it has fetched from the leader.
        for follower in followers:
            scenario.world.network.partition(f"node-{leader}", f"node-{follower}")
            nodes[follower].start()
        await scenario.wait_for(lambda: not partition_of(scenario).eligible_leader_replicas)
        for follower in followers:
            await nodes[follower].kill()
        await nodes[leader].kill()
        await scenario.wait_for(lambda: scenario.leader == -1)
        nodes[leader].start()
        await scenario.wait_for(lambda: scenario.leader == leader)
        await scenario.wait_for(lambda: scenario.leads(leader))
        assert scenario.isr == (leader,)
        assert scenario.high_watermark(leader) == 5
        assert await scenario.read() == [b"0", b"1", b"2", b"3", b"4"]

    for seed in range(3):
        run_scenario(play, seed, controllers=3)


def partition_of(scenario: Scenario) -> PartitionImage:
    return scenario.cluster.image().topics["journal"].partitions[0]


async def recreate_while_a_replica_is_down(scenario: Scenario) -> None:
    """A late CreateTopics request may do that. The replica that comes back has the folder of the old topic."""
    await scenario.send(b"old")
    scenario.acknowledged.clear()
    down = scenario.cluster.nodes[scenario.followers[0]]
    await down.kill()
    await delete_topic_with_retries(scenario.client, "journal")
    await scenario.wait_for(lambda: "journal" not in scenario.cluster.image().topics)
    scenario.topic = Topic(
        "journal", await create_topic_with_retries(scenario.client, "journal", 1, {}, 3), 1
    )
    await scenario.send(b"new")
    down.start()
    await scenario.wait_for(lambda: len(scenario.isr) == 3)


def test_a_replica_of_a_topic_that_was_recreated_while_it_was_down_starts_empty() -> None:
    async def play(scenario: Scenario) -> None:
        await recreate_while_a_replica_is_down(scenario)
        assert await scenario.read() == [b"new"]
        names = [name for node in scenario.cluster.nodes.values() for name in node.disk.list_dir("/data")]
        assert [name.partition(".")[0] for name in names if name.endswith("-stray")] == ["journal-0"]

    for seed in range(3):
        run_scenario(play, seed, controllers=3)
