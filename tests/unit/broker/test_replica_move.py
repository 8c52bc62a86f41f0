"""AlterReplicaLogDirs (KIP-113): replicas move to another data directory while they are served."""

import asyncio
import logging
from collections.abc import Iterable
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.roles import hosted_partition, step_down
from tests.unit.storage.log_builder import batch as new_batch
from tests.unit.storage.log_builder import read_all

from ottla.broker.node import Broker
from ottla.model.config import BrokerConfig, ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.env import World, simulate
from ottla.storage.replica_move import ReplicaMove
from ottla.storage.segment import Segment

TWO = ("/one", "/two")
JOURNAL = TopicPartition("journal", 0)


async def move(
    bench: Bench, path: str, topic: str = "journal", partition: int = 0, version: int = 2
) -> ErrorCode:
    request = AlterReplicaLogDirsRequest(
        dirs=(
            AlterReplicaLogDir(
                path=path, topics=(AlterReplicaLogDirTopic(name=topic, partitions=(partition,)),)
            ),
        )
    )
    code: ErrorCode = (await bench.ask(request, version)).results[0].partitions[0].error_code
    return code


async def moved(bench: Bench) -> None:
    await until(lambda: not bench.services.log_dirs.moves)


def other_directory(bench: Bench) -> str:
    here = bench.services.log_dirs.directory_of(JOURNAL)
    return next(path for path in TWO if path != here)


def folders(bench: Bench) -> dict[str, list[str]]:
    """The folders of the topic's replica in each directory."""
    return {
        path: [name for name in bench.disk.list_dir(path) if name.startswith("journal-0")] for path in TWO
    }


@on_broker(directories=TWO)
async def test_a_replica_moves_with_all_its_records_and_offsets(bench: Bench) -> None:
    topic_id = await bench.create("journal", segment_bytes="1048576")
    for value in (b"a", b"b", b"c"):
        await bench.produce("journal", value)
    old = bench.services.log_dirs.directory_of(JOURNAL)
    target = other_directory(bench)
    assert await move(bench, target) is ErrorCode.none
    await moved(bench)
    assert bench.services.log_dirs.directory_of(JOURNAL) == target
    assert await bench.read(topic_id) == [b"a", b"b", b"c"]
    assert await bench.read(topic_id, 1) == [b"b", b"c"]
    answer = await bench.produce("journal", b"d")
    assert answer.base_offset == 3
    await bench.stop()
    await bench.start()
    assert [name for name in folders(bench)[target] if name == "journal-0"]
    assert not [name for name in folders(bench)[old or ""] if name == "journal-0"]
    assert await bench.read(topic_id, 3) == [b"d"]
    assert await bench.read(topic_id, 1) == [b"b", b"c"]


@on_broker(directories=TWO)
async def test_records_appended_during_the_move_are_in_the_moved_log(bench: Bench) -> None:
    topic_id = await bench.create("journal", segment_bytes="1048576")
    payload = bytes(200_000)
    for _ in range(12):
        await bench.produce("journal", payload)
    target = other_directory(bench)
    assert await move(bench, target) is ErrorCode.none
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    sent = 12
    while bench.services.log_dirs.moves:
        plan = hosted.append(bench.batch(payload), bench.world.clock.now_ms(), required_acks=-1)
        assert plan.first_offset == sent
        sent += 1
        assert sent < 500, "the move does not catch up"
        await asyncio.sleep(0.001)
    assert sent > 14
    assert bench.services.log_dirs.directory_of(JOURNAL) == target
    for offset in range(sent):
        assert (await bench.read(topic_id, offset))[0] == payload
    assert (await bench.produce("journal", b"after")).base_offset == sent


@pytest.mark.parametrize("copy_to_disturb", [1, 2])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_follower_that_is_truncated_during_a_copy_moves_with_its_new_records(
    copy_to_disturb: int, is_deleted: bool
) -> None:
    @on_broker(directories=TWO)
    async def run(bench: Bench) -> None:
        await bench.create("journal", segment_bytes="1048576")
        for number in range(8):
            await bench.produce("journal", b"%d" % number + bytes(400_000))
        step_down(bench)
        hosted, now_ms = hosted_partition(bench), bench.world.clock.now_ms()
        copy, copies = ReplicaMove.copy, count(1)

        def disturb(move: ReplicaMove, segments: Iterable[Segment]) -> None:
            copy(move, segments)
            if next(copies) == copy_to_disturb:
                hosted.truncate(3, now_ms)
                for offset in range(3, 6):
                    new = new_batch(offset, timestamp=now_ms, leader_epoch=hosted.role.leader_epoch)
                    hosted.log.append([new], now_ms)
                if is_deleted:
                    raise FileNotFoundError("00000000000000000004.log")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ReplicaMove, "copy", disturb)
            target = other_directory(bench)
            assert await move(bench, target) is ErrorCode.none
            await moved(bench)
        assert hosted.log.directory == f"{target}/journal-0"
        values = [r.value for b in read_batches(read_all(hosted.log)) for r in b.records]
        assert [value and value[:1] for value in values[:3]] == [b"0", b"1", b"2"]
        assert values[3:] == [b"%020d" % offset for offset in range(3, 6)]

    run()


@on_broker(directories=TWO)
async def test_the_leader_reads_the_offsets_of_the_moved_log(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a")
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    leader = hosted.leader
    await move(bench, other_directory(bench))
    await moved(bench)
    assert hosted.leader is leader
    for expected in (1, 2):
        answer = await bench.produce("journal", b"b")
        assert (answer.error_code, answer.base_offset) == (ErrorCode.none, expected)
    assert leader.high_watermark == hosted.log.log_end_offset == 3
    assert hosted.delete_records(2) == hosted.log.log_start_offset == 2


@on_broker(directories=TWO)
async def test_a_delayed_fetch_is_completed_by_an_append_after_the_move(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    waiting = asyncio.create_task(bench.new_client("reader").fetch(topic_id, 0, 1, max_wait_ms=8_000))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    await move(bench, other_directory(bench))
    await moved(bench)
    await bench.produce("journal", b"b")
    assert (await waiting).records


@on_broker(directories=TWO)
async def test_moving_to_the_same_directory_or_requesting_a_move_twice_changes_nothing(
    bench: Bench,
) -> None:
    await bench.create("journal")
    here, there = bench.services.log_dirs.directory_of(JOURNAL) or "", other_directory(bench)
    assert await move(bench, here) is ErrorCode.none
    assert not bench.services.log_dirs.moves
    for version in (1, 2):
        assert await move(bench, there, version=version) is ErrorCode.none
    await moved(bench)
    assert bench.services.log_dirs.directory_of(JOURNAL) == there


@on_broker(directories=TWO)
async def test_a_move_back_to_the_current_directory_cancels_the_move(bench: Bench) -> None:
    topic_id = await bench.create("journal", file_delete_delay_ms="0")
    await bench.produce("journal", b"a")
    here, there = bench.services.log_dirs.directory_of(JOURNAL) or "", other_directory(bench)
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    bench.services.partitions.move(JOURNAL, there)
    bench.services.partitions.move(JOURNAL, here)
    await until(lambda: folders(bench) == {here: ["journal-0"], there: []})
    await asyncio.sleep(5)
    assert hosted.log.directory == f"{here}/journal-0"
    assert folders(bench) == {here: ["journal-0"], there: []}
    assert await bench.read(topic_id) == [b"a"]


@on_broker(directories=TWO)
async def test_a_move_respects_its_throttle_which_may_change_meanwhile(bench: Bench) -> None:
    await bench.create("journal", segment_bytes="1048576")
    for _ in range(6):
        await bench.produce("journal", bytes(900_000))
    assert (
        await bench.configure(
            ResourceType.BROKER, "", replica_alter_log_dirs_io_max_bytes_per_second="100000"
        )
        is ErrorCode.none
    )
    loop = asyncio.get_running_loop()
    started = loop.time()
    bench.services.partitions.move(JOURNAL, other_directory(bench))
    await until(lambda: loop.time() > started + 20, every_s=1)
    assert bench.services.log_dirs.moves
    await bench.configure(ResourceType.BROKER, "", replica_alter_log_dirs_io_max_bytes_per_second=None)
    await moved(bench)
    assert loop.time() < started + 40


@on_broker(directories=TWO)
async def test_a_path_that_is_no_data_directory_is_rejected(bench: Bench) -> None:
    await bench.create("journal")
    assert await move(bench, "/three") is ErrorCode.log_dir_not_found


@pytest.mark.parametrize(("topic", "partition"), [("nobody", 0), ("journal", 7)])
def test_an_unknown_partition_is_rejected(topic: str, partition: int) -> None:
    @on_broker(directories=TWO)
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        assert await move(bench, "/two", topic, partition) is ErrorCode.unknown_topic_or_partition

    run()


@on_broker(directories=TWO)
async def test_no_replica_is_moved_to_an_offline_directory_or_while_one_is_offline(bench: Bench) -> None:
    await bench.create("journal", 2)
    other = TopicPartition("journal", 1)
    healthy, failing = (
        bench.services.log_dirs.directory_of(JOURNAL),
        bench.services.log_dirs.directory_of(other),
    )
    bench.disk.fail(failing or "")
    assert (await bench.produce("journal", b"a", partition=1)).error_code is ErrorCode.kafka_storage_error
    assert await move(bench, failing or "") is ErrorCode.kafka_storage_error
    assert await move(bench, failing or "", partition=1) is ErrorCode.kafka_storage_error
    assert await move(bench, healthy or "", partition=1) is ErrorCode.kafka_storage_error
    bench.disk.heal()


@on_broker(directories=TWO)
async def test_a_failed_copy_leaves_the_replica_in_its_directory(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    here, target = bench.services.log_dirs.directory_of(JOURNAL), other_directory(bench)
    bench.disk.fail(target, operations=frozenset({"write"}))
    assert await move(bench, target) is ErrorCode.none
    await moved(bench)
    bench.disk.heal()
    assert bench.services.log_dirs.directory_of(JOURNAL) == here
    assert await bench.read(topic_id) == [b"a"]
    await until(lambda: not folders(bench)[target])
    assert await move(bench, target) is ErrorCode.none
    await moved(bench)
    assert bench.services.log_dirs.directory_of(JOURNAL) == target


@on_broker(directories=TWO)
async def test_deleting_a_topic_during_a_move_removes_the_copy(bench: Bench) -> None:
    await bench.create("journal", file_delete_delay_ms="0")
    for _ in range(5):
        await bench.produce("journal", bytes(500_000))
    assert await move(bench, other_directory(bench)) is ErrorCode.none
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    request = DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=5))
    assert (await bench.ask(request)).responses[0].error_code is ErrorCode.none
    await until(lambda: folders(bench) == {"/one": [], "/two": []})
    assert not bench.services.log_dirs.moves


@on_broker(directories=TWO, started=False)
async def test_a_move_that_a_stop_interrupts_is_undone_by_the_next_start(bench: Bench) -> None:
    for end in (bench.stop, bench.kill):
        await bench.start()
        if "journal" not in bench.services.metadata.image.topics:
            await bench.create("journal", segment_bytes="1048576")
            for _ in range(5):
                await bench.produce("journal", bytes(600_000))
        here, there = bench.services.log_dirs.directory_of(JOURNAL) or "", other_directory(bench)
        bench.services.partitions.move(JOURNAL, there)
        await until(lambda there=there: bool(folders(bench)[there]))  # type: ignore[misc]
        await end()
        assert [name for name in folders(bench)[there] if name.endswith("-future")]
        await bench.start()
        assert bench.services.log_dirs.directory_of(JOURNAL) == here
        await until(lambda here=here, there=there: folders(bench) == {here: ["journal-0"], there: []})  # type: ignore[misc]
        assert bench.services.partitions.find_replica("journal", None, 0).log.log_end_offset == 5
        await bench.stop()


@on_broker(directories=TWO)
async def test_the_copy_is_described_as_a_future_replica_until_the_move_is_done(bench: Bench) -> None:
    await bench.create("journal", segment_bytes="1048576")
    for _ in range(5):
        await bench.produce("journal", bytes(600_000))
    target = other_directory(bench)
    await bench.ask(DescribeLogDirsRequest(topics=None))  # loads the handler, during which the move could end
    bench.services.partitions.move(JOURNAL, target)

    async def described(path: str) -> list[tuple[bool, int]]:
        response = await bench.ask(DescribeLogDirsRequest(topics=None))
        (result,) = [result for result in response.results if result.log_dir == path]
        return [(p.is_future_key, p.partition_size) for topic in result.topics for p in topic.partitions]

    assert [future for future, _ in await described(target)] == [True]
    await moved(bench)
    ((is_future, size),) = await described(target)
    assert not is_future
    assert size > 3_000_000


@on_broker(directories=TWO)
async def test_deleted_records_stay_deleted_and_retention_continues_during_a_move(bench: Bench) -> None:
    await bench.create("journal", segment_bytes="1048576", retention_bytes="1500000")
    for _ in range(6):
        await bench.produce("journal", bytes(700_000))
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    bench.services.partitions.move(JOURNAL, other_directory(bench))
    await asyncio.sleep(0.004)
    bench.broker.housekeeping.enforce_retention(bench.world.clock.now_ms())
    start = hosted.log.log_start_offset
    assert start > 0
    hosted.delete_records(5)
    await moved(bench)
    assert hosted.log.log_start_offset == 5
    await bench.kill()
    await bench.start()
    log = bench.services.partitions.find_replica("journal", None, 0).log
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)


def test_a_replica_moves_on_a_real_disk_while_records_are_appended(tmp_path: Path) -> None:
    async def main() -> None:
        paths = [str(tmp_path / name) for name in ("one", "two")]
        settings = {"node.id": "1", "log.dirs": ",".join(paths), "listeners": "PLAINTEXT://127.0.0.1:0"}
        values = [str(index).encode() * 20_000 for index in range(200)]
        async with await Broker.start(BrokerConfig(settings)) as broker:
            services = broker.services
            client = SimClient(services.env.network, broker.address, "test")
            await client.create_topic("journal", 1, {"segment.bytes": "1048576"})
            hosted = services.partitions.find_replica("journal", None, 0)
            target = next(path for path in paths if path != services.log_dirs.directory_of(JOURNAL))
            for index, value in enumerate(values):
                batch = build_batch([Record(0, index, None, value)])
                assert (await client.produce(hosted.topic_id, 0, batch)).base_offset == index
                if index == 100:
                    services.partitions.move(JOURNAL, target)
            async with asyncio.timeout(30):
                await until(lambda: not services.log_dirs.moves)
            assert services.log_dirs.directory_of(JOURNAL) == target
            client.close()
        async with await Broker.start(BrokerConfig(settings)) as broker:
            services = broker.services
            client = SimClient(services.env.network, broker.address, "test")
            for offset in (0, 99, 100, 101, 150, 199):
                answer = await client.fetch(services.metadata.image.topics["journal"].topic_id, 0, offset)
                assert read_batches(answer.records or b"")[0].records[0].value == values[offset]
            client.close()
        assert (tmp_path / target / "journal-0").is_dir()

    asyncio.run(main())


async def append_and_move(bench: Bench, operation: int, acknowledged: list[bytes]) -> None:
    """Power is lost at this disk operation after the start of the move."""
    await bench.create("journal", flush_messages="1", file_delete_delay_ms="0")
    for index in range(4):
        value = str(index).encode()
        answer = await bench.produce("journal", value)
        assert answer.error_code is ErrorCode.none
        acknowledged.append(value)
        if index == 1:
            bench.disk.crash_after(operation)
            bench.services.partitions.move(JOURNAL, other_directory(bench))
            await moved(bench)


def move_with_power_loss(seed: int, operation: int) -> bool:
    """Whether power was lost: the move may have fewer disk operations."""

    async def main(world: World) -> bool:
        bench = Bench(world, {}, TWO)
        await bench.start()
        acknowledged: list[bytes] = []
        working = asyncio.create_task(append_and_move(bench, operation, acknowledged))
        disk = bench.disk
        await until(lambda: working.done() or not disk.is_alive)
        crashed = not bench.disk.is_alive
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await bench.lose_power()
        await bench.start()
        hosted = bench.services.partitions.find_replica("journal", None, 0)
        # A leader commits records that it found unflushed when it has flushed them.
        await until(lambda: hosted.leader.high_watermark == hosted.log.log_end_offset)
        values: list[bytes | None] = []
        while len(values) < hosted.leader.high_watermark:
            values += await bench.read(hosted.topic_id, len(values))
        assert values[: len(acknowledged)] == acknowledged
        await until(lambda: sum(len(names) for names in folders(bench).values()) == 1, every_s=0.5)
        await bench.stop()
        return crashed

    return simulate(main, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 3])  # with these the power goes at every step of a move
def test_a_power_loss_at_any_operation_of_a_move_leaves_one_complete_log(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ottla.storage"):
        for operation in count():
            try:
                if not move_with_power_loss(seed, operation):
                    break
            except BaseException as error:
                error.add_note(f"the power went at operation {operation}")
                raise
    story = "\n".join(caplog.messages)
    assert "the move of the replica was not finished" in story
    assert "finished the move of journal-0 to" in story


@on_broker(directories=TWO)
async def test_the_controller_learns_the_directory_of_a_moved_replica(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    log_dirs = bench.services.log_dirs

    def is_known() -> bool:
        assigned = bench.services.metadata.image.topics_by_id[topic_id].partitions[0].directory(1)
        return assigned == log_dirs.directory_ids[log_dirs.directory_of(JOURNAL) or ""]

    await until(is_known)
    await move(bench, other_directory(bench))
    await moved(bench)
    await until(is_known)
    offset = bench.services.metadata.image.offset
    await bench.stop()
    await bench.start()
    assert is_known(), "it is in the metadata log"
    assert offset < bench.services.metadata.image.offset
