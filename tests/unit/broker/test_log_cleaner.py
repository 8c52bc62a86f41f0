"""Compaction of a broker's logs in a simulated world: which log, when, and what can fail."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, until
from tests.unit.storage.log_builder import offsets_of, read_all

from ottla.broker.hosted_partition import HostedPartition
from ottla.model.config import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.processes import SimProcesses
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.cleaner.swap import SegmentSwap
from ottla.storage.log_dir import CLEANER_OFFSETS, RECOVERY_POINTS

COMPACTED: dict[str, Any] = {"cleanup_policy": "compact", "segment_bytes": "1048576"}
CHANGES = TopicPartition("changes", 0)

T = TypeVar("T")


def hosted(bench: Bench, partition: TopicPartition = CHANGES) -> HostedPartition:
    return bench.services.partitions.find_replica(partition.topic, None, partition.partition)


async def put(bench: Bench, key: bytes, value: bytes | None, topic: str = CHANGES.topic) -> int:
    data = build_batch([Record(0, bench.world.clock.now_ms(), key, value)])
    answer = await bench.produce(topic, records=data)
    assert answer.error_code is ErrorCode.none
    offset: int = answer.base_offset
    return offset


async def fill(bench: Bench, batches: int, keys: int = 2, topic: str = CHANGES.topic) -> None:
    """Two batches make a segment."""
    for number in range(batches):
        await put(bench, b"k%d" % (number % keys), bytes(400_000), topic)


async def delete_topic(bench: Bench, topic: str) -> None:
    wanted = (DeleteTopicState(name=topic, topic_id=None),)
    response = await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    assert response.responses[0].error_code is ErrorCode.none


async def offsets(bench: Bench, topic_id: UUID) -> list[int]:
    """The values of all records, as a consumer reads them."""
    found: list[int] = []
    offset = 0
    while True:
        response = await bench.ask(
            fetch_request(topic_id, fetched(offset, max_bytes=1 << 24), max_bytes=1 << 24)
        )
        (answer,) = response.responses[0].partitions
        assert answer.error_code is ErrorCode.none
        batches = read_batches(answer.records or b"")
        if not batches:
            return found
        found += [record.offset for batch in batches for record in batch.records]
        offset = batches[-1].header.next_offset


def was_cleaned(bench: Bench, partition: TopicPartition = CHANGES) -> bool:
    cleaner = bench.broker.log_cleaner
    return partition in cleaner.last_runs and not cleaner.in_progress


@on_broker()
async def test_a_compacted_topic_keeps_the_newest_of_each_key(bench: Bench) -> None:
    topic_id = await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    await until(lambda: was_cleaned(bench))
    log = hosted(bench).log
    assert await offsets(bench, topic_id) == [6, 7, 8, 9]
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)
    run = bench.broker.log_cleaner.last_runs[CHANGES]
    assert (run.keys, run.records_read, run.records_kept) == (2, 8, 2)
    await until(lambda: bench.disk.exists(f"/data/{CLEANER_OFFSETS}"))
    assert read_offset_checkpoint(bench.disk, f"/data/{CLEANER_OFFSETS}") == {CHANGES: 8}


@on_broker()
async def test_a_fetch_from_a_compacted_offset_returns_the_records_after_it(bench: Bench) -> None:
    topic_id = await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    await until(lambda: was_cleaned(bench))
    for offset in range(7):
        response = await bench.ask(fetch_request(topic_id, fetched(offset)))
        first = read_batches(response.responses[0].partitions[0].records)[0]
        assert first.header.last_offset >= offset  # so every consumer makes progress
        assert [record.offset for record in first.records] in ([], [6])


@on_broker()
async def test_a_clean_log_is_not_cleaned_again_even_after_a_restart(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    await until(lambda: was_cleaned(bench))
    await until(lambda: bench.disk.exists(f"/data/{CLEANER_OFFSETS}"))
    await bench.stop()
    await bench.start()
    assert hosted(bench).log.clean_up_to == 8
    await asyncio.sleep(120)
    assert not bench.broker.log_cleaner.last_runs
    assert bench.broker.log_cleaner.max_dirty_ratio == 0


@on_broker()
async def test_replaced_segments_are_deleted_after_file_delete_delay_ms(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    await until(lambda: was_cleaned(bench))
    await asyncio.sleep(30)
    names = bench.disk.list_dir("/data/changes-0")
    assert any(name.endswith(".log.deleted") for name in names)
    await asyncio.sleep(32)
    names = bench.disk.list_dir("/data/changes-0")
    assert [name for name in names if name.endswith((".deleted", ".swap", ".cleaned"))] == []


@on_broker(log_cleaner_backoff_ms="60000")
async def test_the_dirtiest_log_is_cleaned_first(bench: Bench) -> None:
    for topic in ("tidy", "dirty"):
        await bench.create(topic, **COMPACTED)
    await fill(bench, 10, keys=10, topic="tidy")
    await until(lambda: was_cleaned(bench, TopicPartition("tidy", 0)))
    await fill(bench, 6, keys=10, topic="tidy")
    await fill(bench, 10, topic="dirty")
    for topic in ("tidy", "dirty"):
        hosted(bench, TopicPartition(topic, 0)).log.flush()  # only flushed segments are compacted
    cleaner = bench.broker.log_cleaner
    found = [(str(at.topic_partition), dirt.dirty_ratio) for at, dirt in cleaner.cleanable_logs(0)]
    assert [name for name, _ in found] == ["dirty-0", "tidy-0"]
    assert found[0][1] == 1 > found[1][1] > 0
    assert cleaner.start_due_cleanings(bench.world.clock.now_ms())
    assert [str(partition) for partition in cleaner.in_progress] == ["dirty-0"]


@on_broker()
async def test_below_the_ratio_nothing_is_cleaned(bench: Bench) -> None:
    await bench.create("changes", min_cleanable_dirty_ratio="1.0", **COMPACTED)
    await fill(bench, 10)
    await asyncio.sleep(120)
    assert not bench.broker.log_cleaner.last_runs
    assert bench.broker.log_cleaner.metrics(0)["max-dirty-percent"] == 100


@on_broker()
async def test_max_compaction_lag_closes_the_segment_and_cleans_it(bench: Bench) -> None:
    topic_id = await bench.create(
        "changes", min_cleanable_dirty_ratio="1.0", max_compaction_lag_ms="60000", cleanup_policy="compact"
    )
    for number in range(3):
        await put(bench, b"key", b"%d" % number)
    await asyncio.sleep(61)
    await put(bench, b"other", b"x")  # this append finds that the segment is too old
    await until(lambda: was_cleaned(bench))
    assert await offsets(bench, topic_id) == [2, 3]


@on_broker(log_cleaner_enable="false")
async def test_a_disabled_cleaner_does_nothing(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    await asyncio.sleep(120)
    assert len(hosted(bench).log.segments) == 5


@on_broker()
async def test_the_cleanup_policy_of_a_topic_can_change(bench: Bench) -> None:
    topic_id = await bench.create("changes", segment_bytes="1048576")
    await fill(bench, 10)
    await asyncio.sleep(60)
    assert len(await offsets(bench, topic_id)) == 10
    await bench.configure(ResourceType.TOPIC, "changes", cleanup_policy="compact")
    await until(lambda: was_cleaned(bench))
    assert await offsets(bench, topic_id) == [6, 7, 8, 9]
    await bench.configure(ResourceType.TOPIC, "changes", cleanup_policy="delete")
    await fill(bench, 10)
    await asyncio.sleep(60)
    assert len(await offsets(bench, topic_id)) == 14


@on_broker(log_retention_check_interval_ms="1000")
async def test_a_topic_with_both_policies_is_compacted_and_deleted(bench: Bench) -> None:
    topic_id = await bench.create(
        "changes", cleanup_policy="compact,delete", segment_bytes="1048576", retention_ms="600000"
    )
    await fill(bench, 10)
    await until(lambda: was_cleaned(bench))
    assert await offsets(bench, topic_id) == [6, 7, 8, 9]
    await asyncio.sleep(700)
    assert hosted(bench).log.log_start_offset == 10


@on_broker(log_cleaner_backoff_ms="1000")
async def test_a_damaged_log_is_skipped_with_the_reason_and_the_others_are_cleaned(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await bench.create("sound", min_cleanable_dirty_ratio="1.0", **COMPACTED)
    await fill(bench, 4)
    bench.disk.open("/data/changes-0/00000000000000000000.log").write_at(1000, [b"damage"])
    await fill(bench, 6)
    await fill(bench, 10, topic="sound")
    cleaner = bench.broker.log_cleaner
    await until(lambda: CHANGES in cleaner.uncleanable)
    assert "is damaged at position 0" in cleaner.uncleanable[CHANGES].reason
    metrics = cleaner.metrics(bench.world.clock.now_ms())
    assert metrics["uncleanable-partitions-count"] == 1
    assert metrics["uncleanable-bytes"] > 1_000_000
    await bench.configure(ResourceType.TOPIC, "sound", min_cleanable_dirty_ratio="0.1")
    await until(lambda: was_cleaned(bench, TopicPartition("sound", 0)))
    assert (await bench.produce("changes", b"still served")).error_code is ErrorCode.none
    assert [name for name in bench.disk.list_dir("/data/changes-0") if name.endswith(".cleaned")] == []


@on_broker(log_cleaner_backoff_ms="1000")
async def test_a_topic_of_the_same_name_as_a_damaged_one_is_cleaned(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 4)
    bench.disk.open("/data/changes-0/00000000000000000000.log").write_at(1000, [b"damage"])
    await fill(bench, 6)
    cleaner = bench.broker.log_cleaner
    await until(lambda: CHANGES in cleaner.uncleanable)
    await delete_topic(bench, "changes")
    await bench.create("changes", **COMPACTED)
    assert bench.services.log_dirs.logs[CHANGES].log_end_offset == 0
    await fill(bench, 10)
    await until(lambda: was_cleaned(bench))
    assert CHANGES not in cleaner.uncleanable


@on_broker(log_cleaner_backoff_ms="1000")
async def test_a_log_that_is_no_longer_compacted_keeps_its_end_without_a_recovery_point(
    bench: Bench,
) -> None:
    topic_id = await bench.create("changes", **COMPACTED)
    await fill(bench, 15)
    await until(lambda: was_cleaned(bench))
    await bench.configure(ResourceType.TOPIC, "changes", cleanup_policy="delete")
    before = await offsets(bench, topic_id)
    assert len(before) < 15
    await bench.kill()
    for base in (2, 4, 6, 8, 10):  # Kafka's cleaner leaves no empty batch at the end of a segment
        bench.disk.open(f"/data/changes-0/{base:020d}.log").truncate(0)
    bench.disk.write_atomically(f"/data/{RECOVERY_POINTS}", b"0\n0\n")
    await bench.start()
    assert hosted(bench).log.log_end_offset == 15
    assert await offsets(bench, topic_id) == before


@on_broker(log_cleaner_backoff_ms="1000")
async def test_a_topic_may_be_deleted_while_it_is_cleaned(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    cleaner = bench.broker.log_cleaner
    await until(lambda: CHANGES in cleaner.in_progress, 0.0001)
    at = hosted(bench)
    at.is_closed = True
    await until(lambda: not cleaner.in_progress)
    assert CHANGES not in cleaner.last_runs
    assert CHANGES not in cleaner.uncleanable
    assert [name for name in bench.disk.list_dir("/data/changes-0") if name.endswith(".cleaned")] == []
    at.is_closed = False
    await until(lambda: was_cleaned(bench))


@on_broker(log_cleaner_backoff_ms="1000")
async def test_retention_may_delete_segments_during_a_cleaning(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    cleaner, log = bench.broker.log_cleaner, hosted(bench).log
    await until(lambda: CHANGES in cleaner.in_progress, 0.0001)
    log.delete_records_before(4)
    log.delete_old_segments(bench.world.clock.now_ms(), log.log_end_offset)
    await until(lambda: was_cleaned(bench))
    assert log.segments.base_offsets[0] == 4
    assert not cleaner.uncleanable


@on_broker(log_cleaner_backoff_ms="1000")
async def test_records_stay_if_newer_ones_of_their_keys_are_truncated_during_a_cleaning(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    log, cleaner = hosted(bench).log, bench.broker.log_cleaner
    prepare = SegmentSwap.prepare
    truncated: list[int] = []

    def truncate_later_segments(swap: SegmentSwap) -> None:
        prepare(swap)
        if not truncated:
            truncated.append(log.segments.base_offsets[1])
            log.truncate_to(truncated[0], bench.world.clock.now_ms())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SegmentSwap, "prepare", truncate_later_segments)
        await until(lambda: bool(truncated) and not cleaner.in_progress)
    assert log.log_end_offset == truncated[0]
    assert offsets_of(read_all(log)) == [0, 1]


@on_broker(log_cleaner_backoff_ms="1000")
async def test_a_full_disk_only_delays_a_cleaning(bench: Bench) -> None:
    await bench.create("changes", **COMPACTED)
    await fill(bench, 10)
    bench.disk.fail("/data/changes-0/00000000000000000000.log.cleaned")
    cleaner = bench.broker.log_cleaner
    await asyncio.sleep(30)
    assert CHANGES not in cleaner.last_runs
    assert CHANGES not in cleaner.uncleanable
    bench.disk.heal()
    await until(lambda: was_cleaned(bench))


@on_broker(log_cleaner_dedupe_buffer_size="1048577", log_cleaner_backoff_ms="1000")
async def test_a_batch_with_too_many_keys_is_retried_with_a_larger_buffer(bench: Bench) -> None:
    await bench.create("changes", segment_ms="1000", cleanup_policy="compact")
    records = [Record(n, bench.world.clock.now_ms(), b"%d" % n, b"") for n in range(41_000)]
    await bench.produce("changes", records=build_batch(records))
    await asyncio.sleep(2)
    await put(bench, b"next", b"segment")
    cleaner = bench.broker.log_cleaner
    await until(lambda: CHANGES in cleaner.uncleanable)
    assert "log.cleaner.dedupe.buffer.size" in cleaner.uncleanable[CHANGES].reason
    await bench.configure(ResourceType.BROKER, "", log_cleaner_dedupe_buffer_size="4000000")
    await until(lambda: was_cleaned(bench))
    assert not cleaner.uncleanable


def test_a_cleaner_process_is_read_to_its_end_so_that_it_can_be_reused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[str] = []
    stream = SimProcesses.stream

    async def observed(processes: SimProcesses, work: Callable[[], Iterator[T]]) -> AsyncGenerator[T, None]:
        ends.append("left")
        async for item in stream(processes, work):
            yield item
        ends[-1] = "done"

    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("changes", **COMPACTED)
        await fill(bench, 10)
        await until(lambda: was_cleaned(bench))

    monkeypatch.setattr(SimProcesses, "stream", observed)
    run()
    assert ends == ["done"]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [15.001, 15.004, 15.007, 15.01, 15.02])
def test_a_broker_is_killed_while_it_cleans(seconds: float) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("changes", flush_messages="1", **COMPACTED)
        await fill(bench, 10)
        await asyncio.sleep(seconds - 1)
        await bench.lose_power()
        await bench.start()
        topic = await offsets(bench, topic_id)
        assert set(topic) >= {6, 7, 8, 9}
        await until(lambda: hosted(bench).log.clean_up_to == 8)
        assert await offsets(bench, topic_id) == [6, 7, 8, 9]

    run()


@pytest.mark.slow
@pytest.mark.parametrize("operation", ["open", "map", "sync_dir", "read", "sync"])
@pytest.mark.parametrize("times", [1, 2, 5, 9])
def test_a_cleaning_that_runs_out_of_descriptors_leaves_no_half_swapped_segment_and_is_retried(
    operation: str, times: int
) -> None:
    @on_broker(started=False)
    async def run(bench: Bench) -> None:
        await bench.start()
        topic_id = await bench.create("changes", **COMPACTED)
        await fill(bench, 10)
        bench.disk.fail("/data/changes-0", errno.EMFILE, operations=frozenset({operation}), times=times)
        await until(lambda: was_cleaned(bench))
        bench.disk.heal()
        assert not bench.services.log_dirs.offline
        assert not bench.broker.log_cleaner.uncleanable
        assert not [
            name for name in bench.disk.list_dir("/data/changes-0") if name.endswith((".swap", ".cleaned"))
        ]
        assert await offsets(bench, topic_id) == [6, 7, 8, 9]
        await bench.kill()
        await bench.start()
        assert await offsets(bench, topic_id) == [6, 7, 8, 9]
        await bench.stop()

    run()
