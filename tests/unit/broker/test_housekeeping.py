"""The periodic work of a broker, in a simulated world."""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from tests.unit.broker.broker_bench import Bench, on_broker, until

from ottla.broker.hosted_partition import HostedPartition
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.sim.threads import SimThreads
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.log_dir import HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS

SMALL_SEGMENTS: dict[str, Any] = {"segment_bytes": "1048576"}


def hosted(bench: Bench, topic: str = "journal", partition: int = 0) -> HostedPartition:
    return bench.services.partitions.find_replica(topic, None, partition)


async def fill(bench: Bench, batches: int) -> None:
    for _ in range(batches):
        assert (await bench.produce("journal", bytes(600_000))).error_code is ErrorCode.none


async def delete_topic(bench: Bench, topic: str) -> None:
    wanted = (DeleteTopicState(name=topic, topic_id=None),)
    response = await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    assert response.responses[0].error_code is ErrorCode.none


def names(bench: Bench, ending: str, folder: str = "/data/journal-0") -> list[str]:
    return [name for name in bench.disk.list_dir(folder) if name.endswith(ending)]


@on_broker(log_retention_check_interval_ms="1000")
async def test_retention_by_size_removes_the_oldest_segments_and_moves_the_start(bench: Bench) -> None:
    topic_id = await bench.create("journal", retention_bytes="1500000", **SMALL_SEGMENTS)
    await fill(bench, 6)
    await until(lambda: hosted(bench).log.log_start_offset > 0)
    start = hosted(bench).log.log_start_offset
    assert hosted(bench).leader.low_watermark == start
    assert hosted(bench).log.size_bytes <= 2_200_000
    assert len(await bench.read(topic_id, start)) >= 1
    answer = await bench.produce("journal", b"next")
    assert (answer.base_offset, answer.log_start_offset) == (6, start)


@on_broker(log_retention_check_interval_ms="1000")
async def test_retention_by_time_removes_everything_old_and_offsets_continue(bench: Bench) -> None:
    await bench.create("journal", retention_ms="60000", **SMALL_SEGMENTS)
    await fill(bench, 3)
    await asyncio.sleep(120)
    assert hosted(bench).log.log_start_offset == 3
    assert (await bench.produce("journal", b"next")).base_offset == 3


@on_broker(log_retention_check_interval_ms="1000")
async def test_retention_without_limits_removes_nothing(bench: Bench) -> None:
    await bench.create("journal", retention_ms="-1", **SMALL_SEGMENTS)
    await fill(bench, 3)
    await asyncio.sleep(1000)
    assert hosted(bench).log.log_start_offset == 0


@on_broker(log_retention_check_interval_ms="1000")
async def test_files_of_removed_segments_are_deleted_after_file_delete_delay_ms(bench: Bench) -> None:
    await bench.create("journal", retention_bytes="1", file_delete_delay_ms="60000", **SMALL_SEGMENTS)
    await fill(bench, 3)
    await until(lambda: bool(names(bench, ".deleted")))
    await asyncio.sleep(50)
    assert names(bench, ".log.deleted")
    await asyncio.sleep(15)
    assert not names(bench, ".deleted")


@on_broker()
async def test_files_of_a_deleted_topic_are_deleted_after_file_delete_delay_ms(bench: Bench) -> None:
    await bench.create("journal", file_delete_delay_ms="60000")
    await fill(bench, 1)
    await delete_topic(bench, "journal")
    assert names(bench, "-delete", "/data")
    assert not bench.disk.exists("/data/journal-0")
    await asyncio.sleep(50)
    assert names(bench, "-delete", "/data")
    await asyncio.sleep(15)
    assert not names(bench, "-delete", "/data")


@on_broker(started=False)
async def test_files_of_an_interrupted_deletion_are_deleted_after_the_next_start(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal")
    await delete_topic(bench, "journal")
    await bench.kill()
    await bench.start()
    await until(lambda: not names(bench, "-delete", "/data"))
    await bench.stop()


def test_slow_file_deletions_delay_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    is_gone = asyncio.Event()

    async def slowly(threads: SimThreads, work: Callable[[], Any]) -> Any:
        await is_gone.wait()
        return await threads.run(work)

    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("large", file_delete_delay_ms="0")
        await delete_topic(bench, "large")
        await bench.create("journal", flush_ms="5000")
        await fill(bench, 1)
        await until(lambda: hosted(bench).log.recovery_point == 1)
        assert names(bench, "-delete", "/data")
        is_gone.set()
        await until(lambda: not names(bench, "-delete", "/data"))

    monkeypatch.setattr(SimThreads, "run_in_background", slowly)
    run()


def test_a_file_that_cannot_be_removed_does_not_stop_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        for topic in ("a", "b"):
            await bench.create(topic, file_delete_delay_ms="1000")
            await delete_topic(bench, topic)
        (first, _) = names(bench, "-delete", "/data")
        bench.disk.fail(f"/data/{first}", operations=frozenset({"remove"}))
        await until(lambda: len(names(bench, "-delete", "/data")) == 1)
        bench.disk.heal()

    with caplog.at_level(logging.ERROR, "ottla.housekeeping"):
        run()
    (message,) = caplog.messages
    assert "cannot be removed" in message


@on_broker(
    log_flush_offset_checkpoint_interval_ms="1000",
    log_flush_start_offset_checkpoint_interval_ms="1000",
    replica_high_watermark_checkpoint_interval_ms="1000",
)
async def test_checkpoints_are_written_as_the_logs_grow(bench: Bench) -> None:
    await bench.create("journal", **SMALL_SEGMENTS)
    await fill(bench, 4)
    hosted(bench).delete_records(3)
    await asyncio.sleep(5)
    partition = hosted(bench).topic_partition
    log = hosted(bench).log
    checkpoints = {
        name: read_offset_checkpoint(bench.disk, f"/data/{name}").get(partition)
        for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS)
    }
    assert checkpoints == {RECOVERY_POINTS: log.recovery_point, LOG_START_OFFSETS: 3, HIGH_WATERMARKS: 4}
    assert log.recovery_point >= log.segments.active.base_offset > 0


@on_broker(replica_high_watermark_checkpoint_interval_ms="1000")
async def test_the_high_watermark_of_before_a_crash_is_kept_until_there_is_a_leader(bench: Bench) -> None:
    """A second crash must not lose it: a lone leader shows nothing without it."""
    await bench.create("journal")
    await fill(bench, 4)
    hosted(bench).untrusted_high_watermark = 100
    await asyncio.sleep(5)
    found = read_offset_checkpoint(bench.disk, f"/data/{HIGH_WATERMARKS}")
    assert found[hosted(bench).topic_partition] == 100


@on_broker()
async def test_closed_segments_are_flushed_soon_after_the_roll(bench: Bench) -> None:
    await bench.create("journal", **SMALL_SEGMENTS)
    await fill(bench, 4)
    await until(lambda: hosted(bench).log.recovery_point == hosted(bench).log.segments.active.base_offset)
    assert hosted(bench).log.recovery_point > 0


@on_broker()
async def test_flush_ms_flushes_the_active_segment_too(bench: Bench) -> None:
    await bench.create("journal", flush_ms="5000")
    await bench.create("lazy")
    await bench.produce("journal", b"a")
    await bench.produce("lazy", b"a")
    await asyncio.sleep(20)
    assert hosted(bench).log.recovery_point == 1
    assert hosted(bench, "lazy").log.recovery_point == 0


@on_broker()
async def test_flush_ms_does_not_wait_for_a_wall_clock_that_was_set_back(bench: Bench) -> None:
    await bench.create("journal", flush_ms="5000")
    await bench.produce("journal", b"a")
    bench.world.clock.jump(-3_600_000)
    await asyncio.sleep(20)
    assert hosted(bench).log.recovery_point == 1


@on_broker(producer_id_expiration_ms="60000", producer_id_expiration_check_interval_ms="1000")
async def test_inactive_producers_expire(bench: Bench) -> None:
    await bench.create("journal")
    batch = bench.batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    await bench.produce("journal", records=batch)
    await asyncio.sleep(30)
    assert len(hosted(bench).log.producers) == 1
    await asyncio.sleep(60)
    assert len(hosted(bench).log.producers) == 0


@on_broker()
async def test_a_deleted_topic_is_not_kept_in_memory(bench: Bench) -> None:
    import gc
    import weakref

    await bench.create("journal")
    await bench.produce("journal", b"a")
    await asyncio.sleep(5)
    reference = weakref.ref(hosted(bench))
    await delete_topic(bench, "journal")
    await asyncio.sleep(120)
    gc.collect()
    assert reference() is None


def test_a_failed_round_of_housekeeping_is_logged_and_the_next_one_runs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @on_broker(log_retention_check_interval_ms="1000")
    async def run(bench: Bench) -> None:
        await bench.create("journal", retention_bytes="1", **SMALL_SEGMENTS)
        await fill(bench, 3)
        real = bench.broker.housekeeping.enforce_retention
        failures = iter([ZeroDivisionError("a bug")])

        def once_broken(now_ms: int) -> None:
            for failure in failures:
                raise failure
            real(now_ms)

        bench.broker.housekeeping.enforce_retention = once_broken  # type: ignore[method-assign]
        await until(lambda: hosted(bench).log.log_start_offset > 0)

    with caplog.at_level(logging.ERROR, "ottla.housekeeping"):
        run()
    assert caplog.messages == ["housekeeping failed; it continues with its next round"]


@on_broker(log_retention_check_interval_ms="1000")
async def test_a_changed_default_of_the_broker_applies_to_topics_that_do_not_set_it(bench: Bench) -> None:
    await bench.create("journal", **SMALL_SEGMENTS)
    await fill(bench, 3)
    await asyncio.sleep(100)
    assert hosted(bench).log.log_start_offset == 0
    assert await bench.configure(ResourceType.BROKER, "", log_retention_ms="60000") is ErrorCode.none
    await asyncio.sleep(5)
    assert hosted(bench).log.log_start_offset == 3


@on_broker(replica_high_watermark_checkpoint_interval_ms="1000")
async def test_a_clock_that_is_set_back_does_not_stop_the_checkpoints(bench: Bench) -> None:
    await bench.create("journal")
    bench.world.clock_of("broker").jump(-3_600_000)
    await fill(bench, 1)
    await asyncio.sleep(3)
    checkpoint = read_offset_checkpoint(bench.disk, f"/data/{HIGH_WATERMARKS}")
    assert checkpoint[hosted(bench).topic_partition] == 1
