"""A topic that is deleted and created again: what the broker does before it acknowledges the deletion."""

import asyncio
import errno
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.roles import hosted_partition, lead_alone, step_down

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.core.controller.image import MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.storage.checkpoints import read_offset_checkpoint
from ottla.storage.log_dir import CHECKPOINTS, LOG_START_OFFSETS

JOURNAL = TopicPartition("journal", 0)
METADATA_APART: dict[str, Any] = {
    "directories": ("/data", "/meta"),
    "metadata_log_dir": "/meta",
    "log_dirs": "/data",
}
SOON: dict[str, Any] = {"log_flush_start_offset_checkpoint_interval_ms": "1000"}


async def delete_records(bench: Bench, offset: int) -> None:
    wanted = DeleteRecordsTopic(
        name="journal", partitions=(DeleteRecordsPartition(partition_index=0, offset=offset),)
    )
    response = await bench.ask(DeleteRecordsRequest(topics=(wanted,), timeout=timedelta(seconds=1)))
    assert response.topics[0].partitions[0].error_code is ErrorCode.none


async def delete_topic(bench: Bench) -> None:
    wanted = (DeleteTopicState(name="journal", topic_id=None),)
    response = await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    assert response.responses[0].error_code is ErrorCode.none


def named_in(bench: Bench) -> list[str]:
    """The checkpoint files that contain the partition."""
    return [name for name in CHECKPOINTS if JOURNAL in read_offset_checkpoint(bench.disk, f"/data/{name}")]


async def use(bench: Bench) -> None:
    """Appends ten records and deletes eight of them, and waits for the checkpoints."""
    await bench.create("journal")
    for _ in range(10):
        await bench.produce("journal", b"old")
    await delete_records(bench, 8)
    await bench.stop()
    await bench.start()
    assert len(named_in(bench)) == 3


async def check(bench: Bench, topic_id: UUID) -> None:
    for _ in range(9):
        assert (await bench.produce("journal", b"new")).error_code is ErrorCode.none
    await bench.kill()
    await bench.start()
    log = bench.services.log_dirs.logs[JOURNAL]
    assert (log.log_start_offset, log.log_end_offset) == (0, 9)
    assert len(await bench.read(topic_id)) == 9


@on_broker()
async def test_a_deletion_completes_when_no_checkpoint_has_the_topic(bench: Bench) -> None:
    await use(bench)
    await delete_topic(bench)
    assert not named_in(bench)
    await check(bench, await bench.create("journal"))


@on_broker()
async def test_a_concurrent_deletion_and_creation_are_separate_rounds(bench: Bench) -> None:
    await use(bench)
    syncs: list[str] = []
    bench.services.quorum.subscribe(lambda old, new: syncs.append("+".join(new.topics)))
    _, topic_id = await asyncio.gather(delete_topic(bench), bench.create("journal"))
    assert syncs == ["", "journal"]
    assert not named_in(bench)
    await check(bench, topic_id)


@on_broker()
async def test_a_start_removes_what_a_crash_left_of_a_deletion(bench: Bench) -> None:
    await use(bench)
    deleting = asyncio.create_task(delete_topic(bench))
    await until(lambda: not bench.disk.exists("/data/journal-0"))
    assert len(named_in(bench)) == 3
    await bench.kill()
    deleting.cancel()
    await bench.start()
    assert not named_in(bench)
    await check(bench, await bench.create("journal"))


@on_broker(directories=("/data", "/two"), metadata_log_dir="/two")
async def test_a_disk_failure_during_a_deletion_takes_its_directory_offline(bench: Bench) -> None:
    await bench.create("journal")
    assert bench.services.log_dirs.directory_of(JOURNAL) == "/data"
    bench.disk.fail("/data", errno.EIO, operations=frozenset({"sync_dir"}))
    await delete_topic(bench)
    assert set(bench.services.log_dirs.offline) == {"/data"}
    bench.disk.heal()
    await bench.create("journal")
    assert bench.services.log_dirs.directory_of(JOURNAL) == "/two"


@on_broker(**SOON)
async def test_a_log_start_offset_beyond_the_recovery_point_is_flushed_before_it_is_checkpointed(
    bench: Bench,
) -> None:
    await bench.create("journal")
    for _ in range(10):
        await bench.produce("journal", b"old")
    log = bench.services.log_dirs.logs[JOURNAL]
    assert log.recovery_point == 0
    await delete_records(bench, 8)
    path = f"/data/{LOG_START_OFFSETS}"
    await until(lambda: read_offset_checkpoint(bench.disk, path) == {JOURNAL: 8}, every_s=0.1)
    assert log.recovery_point == 10
    await bench.lose_power()
    await bench.start()
    log = bench.services.log_dirs.logs[JOURNAL]
    assert (log.log_start_offset, log.log_end_offset) == (8, 10)


def without_descriptors(bench: Bench) -> None:
    bench.disk.fail("/data", errno.EMFILE, operations=frozenset({"sync", "sync_dir"}))


def folders(bench: Bench) -> list[str]:
    return [name for name in bench.disk.list_dir("/data") if name == "journal-0"]


async def apply(bench: Bench, image: MetadataImage) -> None:
    """As the loader does, which applies the next image after that."""
    loader = bench.services.quorum.loader
    old, loader.image = loader.image, image
    for work in [subscriber(old, image) for subscriber in loader._subscribers]:
        if work is not None:
            await work


@pytest.mark.parametrize("partitions", [1, 30])
def test_a_deletion_that_cannot_be_synced_stops_no_metadata(partitions: int) -> None:
    @on_broker(**METADATA_APART)
    async def run(bench: Bench) -> None:
        await bench.create("journal", partitions)
        await bench.create("other")
        without_descriptors(bench)
        image = bench.services.metadata.image
        new = image.topics["journal"]._replace(topic_id=UUID(int=8))
        topics = {**image.topics, "journal": new}
        later = replace(image, topics=topics, topics_by_id={each.topic_id: each for each in topics.values()})
        await asyncio.wait_for(apply(bench, later), 5)
        assert not folders(bench)
        step_down(bench, "other")
        assert not hosted_partition(bench, "other").is_led
        lead_alone(bench, "other")
        assert (await bench.produce("other", b"a")).error_code is ErrorCode.none
        await asyncio.sleep(5)
        assert not folders(bench)
        assert (await bench.produce("journal", b"a")).error_code is ErrorCode.kafka_storage_error
        bench.disk.heal()
        await asyncio.sleep(2)
        assert hosted_partition(bench, index=partitions - 1).topic_id == new.topic_id
        assert (await bench.produce("journal", b"a")).base_offset == 0

    run()


@pytest.mark.parametrize("end", ["heal", "kill", "lose_power"])
def test_a_partition_is_not_created_again_before_the_deletion_of_its_name_is_durable(end: str) -> None:
    @on_broker(**METADATA_APART)
    async def run(bench: Bench) -> None:
        await use(bench)
        without_descriptors(bench)
        await asyncio.wait_for(delete_topic(bench), 5)
        topic_id = await asyncio.wait_for(bench.create("journal"), 5)
        await asyncio.sleep(30)
        assert not folders(bench)
        assert len(named_in(bench)) == 3
        assert len(bench.services.log_dirs._dirs[0]._pending) < 10, "each try plans the same checkpoints"
        if end == "heal":
            bench.disk.heal()
            await asyncio.sleep(2)
        else:
            await getattr(bench, end)()
            bench.disk.heal()
            await bench.start()
        await check(bench, topic_id)

    run()


async def recreate_in_other_directory(bench: Bench) -> HostedPartition:
    """Returns the deleted partition. Its log had a record that was not flushed."""
    await bench.create("journal")
    await bench.produce("journal", b"old")
    deleted, log_dirs = hosted_partition(bench), bench.services.log_dirs
    old_directory = log_dirs.directory_of(JOURNAL)
    await delete_topic(bench)
    for number in range(10):
        await bench.create(f"filler-{number}")  # the next partition goes to the directory with the fewest
        if log_dirs.directory_of(TopicPartition(f"filler-{number}", 0)) == old_directory:
            break
    await bench.create("journal")
    assert log_dirs.directory_of(JOURNAL) not in (old_directory, None)
    return deleted


@on_broker(directories=("/one", "/two"))
async def test_an_error_of_a_deleted_log_leaves_the_directory_of_the_new_one_online(bench: Bench) -> None:
    deleted = await recreate_in_other_directory(bench)
    error = deleted.storage_failed(FileNotFoundError(errno.ENOENT, "no such file"))
    assert error.code is ErrorCode.kafka_storage_error
    assert bench.services.log_dirs.offline == {}
    assert (await bench.produce("journal", b"new")).error_code is ErrorCode.none


@on_broker(directories=("/one", "/two"))
async def test_a_flush_that_comes_after_the_deletion_has_no_effect(bench: Bench) -> None:
    deleted = await recreate_in_other_directory(bench)
    await flush_partition(bench.services.env, deleted)
    assert bench.services.log_dirs.offline == {}
    assert (await bench.produce("journal", b"new")).error_code is ErrorCode.none


async def recreate_during_a_disk_failure(bench: Bench) -> UUID:
    """The old folder is in /data, the new one in /two. Returns the new topic id."""
    await bench.create("journal")
    for _ in range(10):
        await bench.produce("journal", b"old")
    await flush_partition(bench.services.env, hosted_partition(bench))
    assert bench.services.log_dirs.directory_of(JOURNAL) == "/data"
    bench.disk.fail("/data")
    assert (await bench.produce("journal", b"lost")).error_code is ErrorCode.kafka_storage_error
    await delete_topic(bench)
    topic_id = await bench.create("journal")
    assert bench.services.log_dirs.directory_of(JOURNAL) == "/two"
    assert (await bench.produce("journal", b"new")).error_code is ErrorCode.none
    bench.disk.heal()
    return topic_id


@pytest.mark.parametrize("order", ["/data,/two", "/two,/data"])
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_directory_that_comes_back_has_the_folder_of_the_deleted_topic(order: str, is_killed: bool) -> None:
    @on_broker(directories=("/data", "/two"), metadata_log_dir="/two")
    async def run(bench: Bench) -> None:
        topic_id = await recreate_during_a_disk_failure(bench)
        await (bench.kill() if is_killed else bench.stop())
        await bench.start(log_dirs=order)
        log_dirs = bench.services.log_dirs
        assert not log_dirs.offline
        assert log_dirs.directory_of(JOURNAL) == "/two"
        assert await bench.read(topic_id) == [b"new"]
        assert hosted_partition(bench).role.high_watermark == 1
        assert (await bench.produce("journal", b"new")).base_offset == 1
        (stray,) = [name for name in bench.disk.list_dir("/data") if name.endswith("-stray")]
        assert bench.disk.read_bytes(f"/data/{stray}/{0:020d}.log").count(b"old") == 10
        await bench.stop()
        await bench.start()
        assert await bench.read(topic_id) == [b"new"] * 2

    run()
