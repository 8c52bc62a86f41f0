"""Commands complete when they are durable, share flushes, and survive restarts, power losses and disk failures."""

import asyncio
import errno
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from tests.examples import scaled

from ottla.broker.quorum.bootstrap import DEFAULT_FEATURES
from ottla.broker.quorum.flushed_offset import RECOVERY_POINT, FlushedOffset
from ottla.broker.quorum.quorum import Quorum
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshots import SnapshotId
from ottla.core.controller.commands import (
    AllocateProducerIds,
    BrokerHeartbeat,
    ControllerCommand,
    CreateTopics,
    DeleteTopics,
    FenceStaleBrokers,
    NewTopic,
    RegisterBroker,
    TopicToDelete,
)
from ottla.core.controller.delta import ReplayError
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.machine import ControllerMachine
from ottla.core.controller.settings import ControllerSettings, supported_feature_ranges
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.protocol.metadata_records.codec import encode_record
from ottla.protocol.metadata_records.records import BeginTransactionRecord, OpaqueRecord, TopicRecord
from ottla.records.control import build_control_batch
from ottla.records.header import read_header
from ottla.sim.disk import SimDisk
from ottla.sim.env import ProcessKilled, World, simulate

LOG_DIR = "/data"
METADATA_DIR = f"{LOG_DIR}/__cluster_metadata-0"
# No broker sends heartbeats here.
CONTROLLER = ControllerSettings(
    validate_configs=lambda resource, configs, altered: None,
    session_timeout_ms=1 << 40,
    activation_grace_ms=1 << 40,
)


class Node:
    """A process with a quorum on its own disk; `restart` starts the next process on that disk."""

    def __init__(self, world: World, disk: SimDisk, settings: QuorumSettings) -> None:
        self.world = world
        self.disk = disk
        self.settings = settings
        self.failures: list[Exception] = []
        self.process = world.process("node", disk)
        self.quorum = self.new_quorum(self.process.env)
        self.broker_epoch = -1

    def new_quorum(self, env: Env) -> Quorum:
        return Quorum(
            env,
            LOG_DIR,
            node_id=1,
            controller=CONTROLLER,
            settings=self.settings,
            on_failure=self.failures.append,
        )

    async def start(self) -> None:
        async def main(env: Env) -> None:
            await self.quorum.start()
            self.broker_epoch = await self.quorum.submit(
                RegisterBroker(
                    1,
                    uuid.UUID(int=env.random.getrandbits(120)),
                    (),
                    supported_feature_ranges(),
                    (uuid.UUID(int=9 << 64),),
                    is_local=True,
                )
            )
            await self.quorum.submit(BrokerHeartbeat(1, self.broker_epoch, self.broker_epoch))

        await self.process.run(main)

    async def restarted(self) -> "Node":
        node = Node(self.world, self.disk.reopen(), self.settings)
        await node.start()
        return node

    async def stopped_and_restarted(self) -> "Node":
        await self.quorum.close()
        self.disk.kill()
        return await self.restarted()

    async def create(self, *names: str, partitions: int = 1) -> None:
        await asyncio.gather(*(self.quorum.submit(topic(name, partitions)) for name in names))

    def snapshots(self) -> list[str]:
        return [name for name in self.disk.list_dir(METADATA_DIR) if name.endswith(".checkpoint")]

    async def wait_for_snapshot(self) -> str:
        """The snapshot is written after the response; a second of virtual time is enough."""
        await asyncio.sleep(1)
        return self.snapshots()[-1]


def topic(name: str, partitions: int = 1) -> ControllerCommand[Any]:
    new = NewTopic(name, uuid.uuid5(uuid.NAMESPACE_DNS, name), partitions, 1)
    return CreateTopics((new,))


def delete(name: str) -> ControllerCommand[Any]:
    return DeleteTopics((TopicToDelete(name, None),))


def in_simulation(
    test: Callable[[Node], Awaitable[None]], seed: int = 1, settings: QuorumSettings | None = None
) -> None:
    async def main(world: World) -> None:
        node = Node(world, world.new_disk(LOG_DIR), settings or QuorumSettings())
        await node.start()
        await test(node)

    simulate(main, seed)


def test_the_controller_pauses_before_it_repeats_a_decision_about_sessions_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decide, attempts, attempts_max = ControllerMachine.decide, 0, 100

    def decide_with_a_bug(self: Any, command: Any, now_ms: int, rest: Any = ()) -> Any:
        nonlocal attempts
        if isinstance(command, FenceStaleBrokers) and attempts < attempts_max:
            attempts += 1
            raise RuntimeError("a bug")
        return decide(self, command, now_ms, rest)

    monkeypatch.setattr(ControllerMachine, "decide", decide_with_a_bug)
    monkeypatch.setitem(globals(), "CONTROLLER", replace(CONTROLLER, session_timeout_ms=3_000))

    async def check(node: Node) -> None:
        await asyncio.sleep(10)
        assert 3 <= attempts <= 10
        monkeypatch.undo()
        await asyncio.sleep(2)
        assert node.quorum.image.brokers[1].fenced

    in_simulation(check)


def test_a_record_that_contradicts_the_image_does_not_reach_the_log() -> None:
    """All nodes would fail on it, with every start."""

    async def check(node: Node) -> None:
        await node.create("a")
        end_offset = node.quorum.driver.node.log.end_offset
        same_id = NewTopic("b", uuid.uuid5(uuid.NAMESPACE_DNS, "a"), 1, 1)
        submitted = asyncio.create_task(node.quorum.submit(CreateTopics((same_id,))))
        await asyncio.sleep(1)
        (failure,) = node.failures
        assert isinstance(failure, ReplayError)
        assert node.quorum.driver.node.log.end_offset == end_offset
        submitted.cancel()
        after = await node.stopped_and_restarted()
        assert set(after.quorum.image.topics) == {"a"}

    in_simulation(check)


def test_an_empty_log_starts_with_the_features_of_this_release_and_writes_them_to_the_bootstrap_file() -> (
    None
):
    async def check(node: Node) -> None:
        assert node.quorum.image.features == DEFAULT_FEATURES
        assert node.disk.exists(f"{LOG_DIR}/bootstrap.checkpoint")

    in_simulation(check)


def test_a_command_completes_when_its_change_is_in_the_image() -> None:
    async def check(node: Node) -> None:
        (result,) = await node.quorum.submit(topic("a", 3))
        assert result.error.code is ErrorCode.none
        assert len(node.quorum.image.topics["a"].partitions) == 3

    in_simulation(check)


def test_a_restart_finds_everything_and_leads_in_a_new_epoch() -> None:
    async def check(node: Node) -> None:
        await node.create("a", "b")
        block = await node.quorum.submit(AllocateProducerIds(1, node.broker_epoch))
        before = node.quorum.describe_quorum()
        node = await node.stopped_and_restarted()
        assert sorted(node.quorum.image.topics) == ["a", "b"]
        assert node.quorum.image.topics["a"].partitions[0].leader_epoch == 2
        assert (await node.quorum.submit(AllocateProducerIds(1, node.broker_epoch))).first == block.size
        after = node.quorum.describe_quorum()
        assert before is not None
        assert after is not None
        assert (after.leader_id, after.leader_epoch) == (1, before.leader_epoch + 1)
        assert [(voter.replica_id, voter.log_end_offset) for voter in after.voters] == [
            (1, after.high_watermark)
        ]
        assert after.high_watermark > before.high_watermark
        assert after.observers == ()

    in_simulation(check)


def test_concurrent_commands_share_one_flush() -> None:
    async def check(node: Node) -> None:
        await node.create("first")
        before = node.disk.stats.operations["sync"]
        await node.create(*(f"t{index}" for index in range(50)))
        assert node.disk.stats.operations["sync"] - before == 1
        assert len(node.quorum.image.topics) == 51

    in_simulation(check)


def test_a_command_sees_the_decision_of_the_previous_one_in_the_same_round() -> None:
    async def check(node: Node) -> None:
        first, second = await asyncio.gather(*(node.quorum.submit(topic("a")) for _ in range(2)))
        assert first[0].error.code is ErrorCode.none
        assert second[0].error.code is ErrorCode.topic_already_exists

    in_simulation(check)


def test_a_rejected_command_raises_and_the_others_succeed() -> None:
    async def check(node: Node) -> None:
        rejected, created = await asyncio.gather(
            node.quorum.submit(BrokerHeartbeat(7, 0, 0)),
            node.quorum.submit(topic("a")),
            return_exceptions=True,
        )
        assert isinstance(rejected, KafkaError)
        assert rejected.code is ErrorCode.broker_id_not_registered
        assert isinstance(created, tuple)

    in_simulation(check)


def test_a_cancelled_caller_does_not_stop_its_command() -> None:
    async def check(node: Node) -> None:
        gone = asyncio.ensure_future(node.quorum.submit(topic("a")))
        await asyncio.sleep(0)
        gone.cancel()
        await node.create("b")
        assert sorted(node.quorum.image.topics) == ["a", "b"]

    in_simulation(check)


def test_subscribers_see_every_image_in_order_before_the_response() -> None:
    async def check(node: Node) -> None:
        seen: list[tuple[MetadataImage, MetadataImage]] = []
        node.quorum.subscribe(lambda old, new: seen.append((old, new)))
        await node.create("a")
        assert seen[-1][1] is node.quorum.image
        await node.create("b")
        assert [sorted(new.topics) for _, new in seen] == [["a"], ["a", "b"]]
        assert seen[1][0] is seen[0][1]

    in_simulation(check)


def test_the_work_that_a_subscriber_returns_is_done_before_the_response() -> None:
    async def check(node: Node) -> None:
        done: list[str] = []

        async def finish(name: str) -> None:
            await asyncio.sleep(1)
            done.append(name)

        node.quorum.subscribe(lambda old, new: finish(sorted(new.topics)[-1]))
        await node.create("a")
        assert done == ["a"]

    in_simulation(check)


def test_commands_after_a_deletion_are_decided_when_the_subscribers_have_finished_it() -> None:
    async def check(node: Node) -> None:
        await node.create("a", "b")
        story: list[str] = []

        async def finish() -> None:
            await asyncio.sleep(1)
            story.append("done")

        def note(old: MetadataImage, new: MetadataImage) -> Awaitable[None] | None:
            story.append("+".join(sorted(new.topics)))
            return finish() if old.topics.keys() - new.topics.keys() else None

        node.quorum.subscribe(note)
        commands = [topic("c"), delete("a"), delete("b"), topic("a"), topic("b"), delete("c"), topic("c")]
        results = await asyncio.gather(*(node.quorum.submit(command) for command in commands))
        assert {result[0].error.code for result in results} == {ErrorCode.none}
        assert story == ["c", "done", "a+b", "done", "a+b+c"]

    in_simulation(check)


def test_a_subscriber_that_fails_does_not_affect_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def check(node: Node) -> None:
        def fail(old: MetadataImage, new: MetadataImage) -> None:
            raise RuntimeError("the publisher broke")

        seen: list[int] = []
        node.quorum.subscribe(fail)
        node.quorum.subscribe(lambda old, new: seen.append(new.offset))
        await node.create("a")
        assert seen == [node.quorum.image.offset]

    in_simulation(check)
    assert "the publisher broke" in caplog.text


@pytest.mark.parametrize("seed", range(scaled(12)))
def test_acknowledged_commands_survive_a_power_loss_at_any_moment(seed: int) -> None:
    async def check(node: Node) -> None:
        answered: set[str] = set()

        async def create(env: Env, names: list[str]) -> None:
            for name in names:
                await node.quorum.submit(topic(name, 2))
                answered.add(name)

        for round_number in range(3):
            names = [f"r{round_number}n{index}" for index in range(30)]
            node.disk.crash_after(node.world.random.randrange(1, 80))
            try:
                await node.process.run(lambda env, names=names: create(env, names))  # type: ignore[misc]
            except (ProcessKilled, KafkaError, OSError):
                pass
            await node.process.lose_power()
            node = await node.restarted()
            assert answered <= set(node.quorum.image.topics)
            assert node.quorum.machine is not None
            node.quorum.machine.validate()

    in_simulation(check, seed, QuorumSettings(snapshot_bytes=3000))


def test_a_snapshot_is_written_after_enough_bytes_and_the_log_before_it_is_deleted() -> None:
    async def check(node: Node) -> None:
        await node.create("a", partitions=40)
        snapshot = await node.wait_for_snapshot()
        image = node.quorum.image
        assert snapshot == f"{image.offset + 1:020d}-{image.epoch:010d}.checkpoint"
        node = await node.stopped_and_restarted()
        assert len(node.quorum.image.topics["a"].partitions) == 40
        await node.create("b")
        node = await node.stopped_and_restarted()
        assert sorted(node.quorum.image.topics) == ["a", "b"]

    in_simulation(check, settings=QuorumSettings(snapshot_bytes=3000))


def test_a_snapshot_is_written_after_the_interval() -> None:
    async def check(node: Node) -> None:
        await node.create("a")
        await asyncio.sleep(59)
        assert not node.snapshots()
        await asyncio.sleep(2)
        await node.create("b")
        await node.wait_for_snapshot()

    in_simulation(check, settings=QuorumSettings(snapshot_interval_ms=60_000))


def test_old_snapshots_and_segments_are_deleted_by_size_but_never_the_last_snapshot() -> None:
    settings = QuorumSettings(snapshot_bytes=2000, retention_bytes=6000, segment_bytes=8000)

    async def check(node: Node) -> None:
        for index in range(30):
            await node.create(f"t{index}", partitions=4)
        await asyncio.sleep(61)  # file.delete.delay.ms
        await node.create("last")
        names = node.disk.list_dir(METADATA_DIR)
        assert sum(name.endswith(".checkpoint") for name in names) == 1
        assert f"{0:020d}.log" not in names
        assert not [name for name in names if name.endswith(".deleted")]
        node = await node.stopped_and_restarted()
        assert len(node.quorum.image.topics) == 31

    in_simulation(check, settings=settings)


def test_commands_do_not_wait_for_a_snapshot() -> None:
    async def check(node: Node) -> None:
        await node.create("a", partitions=40)
        assert not node.snapshots()
        await node.create("b")
        snapshot = await node.wait_for_snapshot()
        assert int(snapshot.partition("-")[0]) <= node.quorum.image.offset

    in_simulation(check, settings=QuorumSettings(snapshot_bytes=3000))


def test_a_snapshot_that_cannot_be_written_does_not_stop_the_quorum(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: Node) -> None:
        node.disk.fail(METADATA_DIR, errno.ENOSPC, operations=frozenset({"rename"}), times=1)
        await node.create("a", partitions=40)
        await asyncio.sleep(1)
        assert not node.snapshots()
        await node.create("b", partitions=40)
        await node.wait_for_snapshot()
        assert not node.failures

    in_simulation(check, settings=QuorumSettings(snapshot_bytes=3000))
    assert "the metadata snapshot in" in caplog.text
    assert "could not be written" in caplog.text


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_log_that_cannot_be_written_fails_the_commands_and_stops_the_node(operation: str) -> None:
    async def check(node: Node) -> None:
        node.disk.fail(METADATA_DIR, errno.EIO, operations=frozenset({operation}))
        results = await asyncio.gather(
            *(node.quorum.submit(topic(name)) for name in "ab"), return_exceptions=True
        )
        assert [getattr(result, "code", None) for result in results] == [ErrorCode.kafka_storage_error] * 2
        assert not node.quorum.image.topics
        assert len(node.failures) == 1
        with pytest.raises(KafkaError) as rejected:
            await node.quorum.submit(topic("c"))
        assert rejected.value.code is ErrorCode.kafka_storage_error
        node.disk.heal()
        await node.quorum.close()

    in_simulation(check)


def test_commands_are_rejected_after_close() -> None:
    async def check(node: Node) -> None:
        await node.quorum.close()
        with pytest.raises(KafkaError) as rejected:
            await node.quorum.submit(topic("a"))
        assert rejected.value.code is ErrorCode.not_controller

    in_simulation(check)


def test_a_metadata_transaction_that_a_crash_left_open_is_aborted() -> None:
    async def check(node: Node) -> None:
        records = (BeginTransactionRecord(name="x"), TopicRecord(name="half", topic_id=uuid.UUID(int=3)))
        driver = node.quorum.driver
        driver.propose([encode_record(record) for record in records], driver.node.epoch)
        await node.create("whole")  # flushes both
        node = await node.stopped_and_restarted()
        assert "half" not in node.quorum.image.topics

    in_simulation(check)


def test_records_without_effect_are_kept_through_snapshots(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: Node) -> None:
        quota = OpaqueRecord(14, 0, b"some quota")
        assert node.quorum._controller is not None
        node.quorum._controller.append([quota])
        await node.create("a")
        for _ in range(2):
            node = await node.stopped_and_restarted()
            assert tuple(node.quorum.image.opaque.values()) == (quota,)

    in_simulation(check, settings=QuorumSettings(snapshot_bytes=1))
    assert "1 records of types without effect" in caplog.text


def test_a_log_that_lost_its_end_continues_from_the_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    async def check(node: Node) -> None:
        await node.create("a", partitions=3)
        offset = node.quorum.image.offset
        await node.quorum.close()
        log = node.disk.open(f"{METADATA_DIR}/{0:020d}.log")
        log.truncate(100)
        log.sync()
        node.disk.kill()
        node = await node.restarted()
        assert len(node.quorum.image.topics["a"].partitions) == 3
        assert node.quorum.image.offset > offset

    in_simulation(check, settings=QuorumSettings(snapshot_bytes=1))
    assert "it goes on from the snapshot" in caplog.text


def test_a_directory_formatted_for_dynamic_voters_starts_with_an_empty_snapshot() -> None:
    """KIP-853: Kafka's formatting writes the first voters into a snapshot at offset 0."""

    async def main(world: World) -> None:
        disk = world.new_disk(LOG_DIR)
        disk.make_dirs(METADATA_DIR)
        header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=0)
        messages: tuple[Any, ...] = (
            header,
            KRaftVersionRecord(version=0, k_raft_version=1),
            SnapshotFooterRecord(version=0),
        )
        data = b"".join(
            build_control_batch([message], base_offset=offset, timestamp=0, leader_epoch=0)
            for offset, message in enumerate(messages)
        )
        disk.write_atomically(f"{METADATA_DIR}/{SnapshotId(0, 0).file_name}", data)
        node = Node(world, disk, QuorumSettings())
        await node.start()
        assert node.quorum.image.features == DEFAULT_FEATURES
        node = await node.stopped_and_restarted()
        assert node.quorum.driver.node.epoch == 2

    simulate(main, 1)


def test_a_log_without_the_snapshot_before_it_is_rejected() -> None:
    async def check(node: Node) -> None:
        for index in range(10):
            await node.create(f"t{index}", partitions=4)
        await node.quorum.close()
        for name in node.disk.list_dir(METADATA_DIR):
            if name.endswith(".checkpoint"):
                node.disk.remove(f"{METADATA_DIR}/{name}")
        node.disk.kill()
        with pytest.raises(KafkaError, match="no snapshot reaches it"):
            await node.restarted()

    in_simulation(
        check, settings=QuorumSettings(snapshot_bytes=1000, retention_bytes=1000, segment_bytes=1000)
    )


def test_the_leader_change_of_an_epoch_is_its_first_entry() -> None:
    async def check(node: Node) -> None:
        quorum = node.new_quorum(node.process.env)
        await node.quorum.close()
        await quorum.start()
        (first, *_) = quorum._log.batches_from(
            quorum.driver.node.epoch_start_offset, quorum.driver.node.high_watermark
        )
        assert first.header.is_control
        assert first.header.partition_leader_epoch == quorum.driver.node.epoch == 2
        await quorum.close()

    in_simulation(check)


def log_path(node: Node) -> str:
    (name,) = [name for name in node.disk.list_dir(METADATA_DIR) if name.endswith(".log")]
    return f"{METADATA_DIR}/{name}"


@pytest.mark.parametrize("has_recovery_point", [True, False], ids=["ottla", "kafka"])
def test_one_flipped_bit_in_the_log_stops_the_start_or_changes_nothing(has_recovery_point: bool) -> None:
    """The checksum does not cover offset and epoch of a batch: a change there may go unnoticed, but loses nothing."""

    async def check(node: Node) -> None:
        names = {"a", "b", "c"}
        for name in sorted(names):
            await node.create(name, partitions=2)
        await node.quorum.close()
        if not has_recovery_point:
            node.disk.remove(f"{METADATA_DIR}/{RECOVERY_POINT}")
        path = log_path(node)
        good = node.disk.read_bytes(path)
        rejected = 0
        last_batch = find_last_batch(good)
        for position in range(0, len(good) if has_recovery_point else last_batch, 5):
            damaged = bytearray(good)
            damaged[position] ^= 1 << position % 8
            file = node.disk.open(path)
            file.write_at(0, [bytes(damaged)])
            file.truncate(len(good))
            for _ in range(2):  # a second start, as by a service manager, fails likewise
                node.disk.kill()
                message = ""
                try:
                    node = await node.restarted()
                except KafkaError as error:
                    message = error.message
                    node = Node(node.world, node.disk.reopen(), node.settings)
                if not message:
                    assert node.quorum.image.topics.keys() == names
                    await node.quorum.close()
                    good = node.disk.read_bytes(path)
                    break
                assert METADATA_DIR in message
                assert "Restore" in message
                assert node.disk.read_bytes(path) == bytes(damaged)
                rejected += 1
        assert rejected > len(good) // 5

    in_simulation(check)


def find_last_batch(data: bytes) -> int:
    position = last = 0
    while position < len(data):
        last, position = position, position + read_header(data, position).size
    return last


def test_a_lost_end_of_the_log_stops_the_start() -> None:
    async def check(node: Node) -> None:
        await node.create("a")
        await node.quorum.close()
        path = log_path(node)
        node.disk.open(path).truncate(find_last_batch(node.disk.read_bytes(path)))
        node.disk.kill()
        for _ in range(2):
            with pytest.raises(KafkaError, match=r"ends at offset \d+, but was on disk up to offset \d+"):
                await node.restarted()
        disk = node.disk.reopen()
        disk.remove(f"{METADATA_DIR}/{RECOVERY_POINT}")
        node = Node(node.world, disk, node.settings)
        await node.start()  # as the message says

    in_simulation(check)


def test_a_missing_segment_in_the_middle_of_the_log_stops_the_start() -> None:
    async def check(node: Node) -> None:
        for index in range(12):
            await node.create(f"t{index}", partitions=4)
        await node.quorum.close()
        logs = [name for name in node.disk.list_dir(METADATA_DIR) if name.endswith(".log")]
        assert len(logs) > 3
        node.disk.remove(f"{METADATA_DIR}/{logs[1]}")
        node.disk.kill()
        with pytest.raises(KafkaError, match=METADATA_DIR):
            await node.restarted()
        left = [name for name in node.disk.reopen().list_dir(METADATA_DIR) if name.endswith(".log")]
        assert left == [logs[0], *logs[2:]]

    in_simulation(check, settings=QuorumSettings(segment_bytes=1000))


def test_a_damaged_snapshot_stops_the_start_and_is_named() -> None:
    async def check(node: Node) -> None:
        await node.create("a", partitions=3)
        path = f"{METADATA_DIR}/{await node.wait_for_snapshot()}"
        await node.quorum.close()
        data = bytearray(node.disk.read_bytes(path))
        data[200] ^= 1
        node.disk.open(path).write_at(0, [bytes(data)])
        node.disk.kill()
        for _ in range(2):
            with pytest.raises(KafkaError, match=rf"{path} is damaged at position \d+: .*Restore it"):
                await node.restarted()

    in_simulation(check, settings=QuorumSettings(snapshot_bytes=1))


def test_a_missing_log_is_not_created_again_if_there_are_partitions() -> None:
    async def check(node: Node) -> None:
        await node.quorum.close()
        node.disk.remove_tree(METADATA_DIR)
        quorum = Quorum(
            node.process.env,
            LOG_DIR,
            node_id=1,
            controller=CONTROLLER,
            settings=node.settings,
            on_failure=node.failures.append,
            partitions=[TopicPartition("a", 0)],
        )
        with pytest.raises(KafkaError, match=f"{METADATA_DIR} is missing or empty, .* such as a-0"):
            await quorum.start()
        assert not node.disk.exists(METADATA_DIR)

    in_simulation(check)


@pytest.mark.parametrize("damage", [b"", b"\0" * 60, b"garbage"])
def test_a_damaged_recovery_point_is_written_again(damage: bytes) -> None:
    async def check(node: Node) -> None:
        await node.create("a")
        await node.quorum.close()
        path = f"{METADATA_DIR}/{RECOVERY_POINT}"
        node.disk.open(path).truncate(0)
        node.disk.open(path).write_at(0, [damage])
        node = await node.stopped_and_restarted()
        assert "a" in node.quorum.image.topics
        end_offset = node.quorum.driver.node.log.end_offset
        await node.quorum.close()
        assert FlushedOffset(node.disk, METADATA_DIR).read() == end_offset

    in_simulation(check)


def test_heartbeats_are_answered_while_the_broker_of_this_node_still_opens_partitions() -> None:
    """The next heartbeat waits for the answer: without it, the session of the broker would end meanwhile."""

    async def check(node: Node) -> None:
        is_open = asyncio.Event()

        async def open_slowly() -> None:
            await is_open.wait()

        node.quorum.subscribe(lambda old, new: open_slowly() if "large" in new.topics else None)
        creating = asyncio.create_task(node.create("large"))
        await asyncio.sleep(30)
        assert not creating.done()
        async with asyncio.timeout(1):
            reply = await node.quorum.submit(BrokerHeartbeat(1, node.broker_epoch, node.broker_epoch))
        assert not reply.is_fenced
        is_open.set()
        await creating

    in_simulation(check)


def test_only_creations_of_topics_wait_until_the_broker_of_this_node_has_deleted_topics() -> None:
    async def check(node: Node) -> None:
        await node.create("a", "b")
        is_deleted = asyncio.Event()

        async def delete_slowly() -> None:
            await is_deleted.wait()

        node.quorum.subscribe(lambda old, new: None if "a" in new.topics else delete_slowly())
        submitted = [
            asyncio.create_task(node.quorum.submit(command))
            for command in (delete("a"), topic("a"), delete("b"), topic("b"))
        ]
        machine = node.quorum.machine
        assert machine is not None
        for _ in range(3):
            await asyncio.sleep(30)
            async with asyncio.timeout(1):
                reply = await node.quorum.submit(BrokerHeartbeat(1, node.broker_epoch, node.broker_epoch))
            assert not reply.is_fenced
            assert [*machine.image.topics] == ["b"]
        block = await node.quorum.submit(AllocateProducerIds(1, node.broker_epoch))
        assert not any(each.done() for each in submitted)
        is_deleted.set()
        results = await asyncio.gather(*submitted)
        assert {result[0].error.code for result in results} == {ErrorCode.none}
        assert sorted(node.quorum.image.topics) == ["a", "b"]
        assert node.quorum.image.next_producer_id == block.first + block.size

    in_simulation(check)


def test_a_creation_that_waits_for_a_deletion_gets_an_error_if_the_controller_stops() -> None:
    async def check(node: Node) -> None:
        await node.create("a")
        deletion = asyncio.create_task(asyncio.sleep(60))
        node.quorum.subscribe(lambda old, new: None if "a" in new.topics else asyncio.shield(deletion))
        deleting = asyncio.create_task(node.quorum.submit(delete("a")))
        creating = asyncio.create_task(node.quorum.submit(topic("a")))
        await asyncio.sleep(1)
        await node.quorum.close()
        for each in (deleting, creating):
            with pytest.raises(KafkaError) as stopped:
                await each
            assert stopped.value.code is ErrorCode.not_controller

    in_simulation(check)
