"""A follower's log is truncated without reading it on the event loop, and only while the broker still follows."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.roles import hosted_partition, lead_alone, step_down

from ottla.broker import partition_truncation
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.broker.partition_truncation import start_partition_again, truncate_partition
from ottla.core.partition.follower import PartitionFollower
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.sim.loop_watch import _OUTSIDE
from ottla.storage import producer_state
from ottla.storage.batch_scan import iter_headers
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.log_dir import RECOVERY_POINTS, CheckpointWrite

RECORDS = 40


async def follower(bench: Bench) -> PartitionFollower:
    await bench.create("journal")
    for number in range(RECORDS):
        await bench.produce("journal", b"%d" % number)
    step_down(bench)
    role = hosted_partition(bench).role
    assert isinstance(role, PartitionFollower)
    return role


async def truncate(bench: Bench, role: PartitionFollower, meanwhile: Callable[[], None] | None = None) -> int:
    """Truncates to offset 7, calls `meanwhile` before the thread is done, and returns the end of the log."""
    hosted = hosted_partition(bench)
    truncation = asyncio.create_task(truncate_partition(bench.services.env, hosted, role, 7))
    await asyncio.sleep(0)
    if meanwhile is not None:
        meanwhile()
    await truncation
    return hosted.log.log_end_offset


async def checkpoint_recovery_point(bench: Bench) -> int:
    """Flushes the log and writes the checkpoint, as housekeeping does. Returns the recovery point in the file."""
    await flush_partition(bench.services.env, hosted_partition(bench))
    for checkpoint in bench.services.log_dirs.recovery_point_checkpoints():
        checkpoint.write()
        checkpoint.complete()
    return recovery_point_on_disk(bench)


def recovery_point_on_disk(bench: Bench) -> int:
    return read_offset_checkpoint(bench.disk, f"/data/{RECOVERY_POINTS}")[TopicPartition("journal", 0)]


def failing_read(error: OSError) -> Callable[..., Callable[[], None]]:
    def read() -> None:
        raise error

    return lambda log, offset: read


@on_broker()
async def test_the_batches_of_the_active_segment_are_read_in_a_thread(bench: Bench) -> None:
    role = await follower(bench)
    in_thread: list[bool] = []

    def watched(*arguments: Any) -> Iterator[Any]:
        in_thread.append(_OUTSIDE.get())
        return iter(iter_headers(*arguments))

    hosted_partition(bench).log.producers.update(next_header(bench))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_state, "iter_headers", watched)
        assert await truncate(bench, role) == 7
    assert in_thread == [True]


def next_header(bench: Bench) -> Any:
    """A header of an idempotent producer, so that the log has a producer to restore."""
    segment = hosted_partition(bench).log.segments.active
    _, header = next(iter(iter_headers(segment.file, 0, segment.size)))
    return header._replace(producer_id=5, producer_epoch=0, base_sequence=0)


@on_broker()
async def test_a_broker_that_leads_meanwhile_keeps_its_records(bench: Bench) -> None:
    role = await follower(bench)
    assert await truncate(bench, role, meanwhile=lambda: lead_alone(bench)) == RECORDS
    assert hosted_partition(bench).is_led


@on_broker()
async def test_a_log_that_was_truncated_meanwhile_is_read_again(bench: Bench) -> None:
    role = await follower(bench)
    now_ms = bench.world.clock.now_ms()
    with pytest.raises(KafkaError, match="not truncated yet") as raised:
        await truncate(bench, role, meanwhile=lambda: hosted_partition(bench).truncate(20, now_ms))
    assert raised.value.code is ErrorCode.kafka_storage_error
    assert hosted_partition(bench).failure is None
    assert await truncate(bench, role) == 7


@on_broker()
async def test_a_file_that_retention_removes_meanwhile_is_no_disk_failure(bench: Bench) -> None:
    role = await follower(bench)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_truncation, "prepare_read", failing_read(FileNotFoundError("0.snapshot")))
        with pytest.raises(KafkaError, match="not truncated yet"):
            await truncate(bench, role)
    assert hosted_partition(bench).failure is None
    assert await truncate(bench, role) == 7


@on_broker()
async def test_a_disk_failure_during_the_read_takes_the_partition_offline(bench: Bench) -> None:
    role = await follower(bench)
    hosted = hosted_partition(bench)
    failures: list[OSError] = []

    def fail(_: HostedPartition, error: OSError) -> KafkaError:
        failures.append(error)
        return KafkaError(ErrorCode.kafka_storage_error, "the disk has failed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_truncation, "prepare_read", failing_read(OSError(5, "Input/output error")))
        patch.setattr(hosted, "_on_storage_error", fail)
        with pytest.raises(KafkaError, match="the disk has failed"):
            await truncate(bench, role)
    assert [error.errno for error in failures] == [5]
    assert hosted.log.log_end_offset == RECORDS


@on_broker()
async def test_the_recovery_point_on_disk_is_lowered_before_the_log_is_cut(bench: Bench) -> None:
    role = await follower(bench)
    hosted = hosted_partition(bench)
    assert await checkpoint_recovery_point(bench) > 7
    on_disk: list[int] = []

    def cut(*arguments: Any) -> bool:
        on_disk.append(recovery_point_on_disk(bench))
        return bool(type(hosted.log).truncate_to(hosted.log, *arguments))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted.log, "truncate_to", cut)
        assert await truncate(bench, role) == 7
    assert on_disk == [7]


@on_broker()
async def test_a_checkpoint_that_housekeeping_plans_meanwhile_does_not_raise_it_again(bench: Bench) -> None:
    role = await follower(bench)
    await checkpoint_recovery_point(bench)
    hosted, log_dirs = hosted_partition(bench), bench.services.log_dirs
    log_dir = log_dirs._dirs[0]
    planned: list[CheckpointWrite] = []

    def plan(partition: TopicPartition, offset: int) -> CheckpointWrite | None:
        lowered = log_dirs.plan_truncation(partition, offset)
        if not planned:
            planned.append(log_dir.plan_checkpoint(RECOVERY_POINTS, dict(log_dir.recovery_points)))
        return lowered

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hosted, "_plan_truncation", plan)
        assert await truncate(bench, role) == 7
    planned[0].write()
    assert recovery_point_on_disk(bench) == 7


@on_broker()
async def test_no_checkpoint_is_written_if_the_recovery_point_on_disk_is_low_enough(bench: Bench) -> None:
    role = await follower(bench)
    await checkpoint_recovery_point(bench)
    assert await truncate(bench, role) == 7
    before = bench.services.log_dirs._dirs[0]._planned
    hosted = hosted_partition(bench)
    await truncate_partition(bench.services.env, hosted, role, 7)
    await start_partition_again(bench.services.env, hosted, role, 100)
    assert hosted.log.log_start_offset == hosted.log.log_end_offset == 100
    assert bench.services.log_dirs._dirs[0]._planned == before
