"""Disks that fail or are full: what lies on them is refused, the rest goes on (KIP-112)."""

import asyncio
import errno
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.broker.bench import Bench, fetch_request, fetched, on_broker, until

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.disk import WRITES

TWO = ("/one", "/two")
METADATA_APART = {"directories": (*TWO, "/meta"), "metadata_log_dir": "/meta", "log_dirs": ",".join(TWO)}


async def spread_topic(bench: Bench, **configs: str) -> tuple[Any, int, int, str]:
    """(topic id, a partition in the directory that will fail, one in the other, the directory that will fail)"""
    topic_id = await bench.create("journal", 4, **configs)
    directories = {
        index: bench.broker.log_dirs.directory_of(TopicPartition("journal", index)) for index in range(4)
    }
    failing = "/two"
    sick = next(index for index, path in directories.items() if path == failing)
    sound = next(index for index, path in directories.items() if path != failing)
    return topic_id, sick, sound, failing


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_directory_that_cannot_be_written_takes_its_partitions_along_and_no_others(error: int) -> None:
    @on_broker(**METADATA_APART)  # type: ignore[arg-type]
    async def run(bench: Bench) -> None:
        topic_id, sick, sound, failing = await spread_topic(bench)
        for partition in (sick, sound):
            await bench.produce("journal", b"a", partition=partition)
        bench.disk.fail(failing, error, operations=WRITES)
        answer = await bench.produce("journal", b"b", partition=sick)
        assert answer.error_code is ErrorCode.kafka_storage_error
        assert failing in answer.error_message
        assert "Mend the disk and restart the broker" in answer.error_message
        assert (await bench.produce("journal", b"b", partition=sound)).base_offset == 1
        assert await bench.read(topic_id, partition=sound) == [b"a", b"b"]
        response = await bench.ask(fetch_request(topic_id, fetched(partition=sick)))
        assert response.responses[0].partitions[0].error_code is ErrorCode.kafka_storage_error
        assert not bench.broker.failed.done()  # type: ignore[union-attr]
        bench.disk.heal()

    run()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_every_request_for_an_offline_partition_gets_a_storage_error(bench: Bench) -> None:
    _, sick, _, failing = await spread_topic(bench)
    bench.disk.fail(failing)
    await bench.produce("journal", b"a", partition=sick)
    for timestamp in (-1, -2, -3, 1000):
        wanted = ListOffsetsPartition(partition_index=sick, timestamp=timestamp)
        response = await bench.ask(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=0,
                topics=(ListOffsetsTopic(name="journal", partitions=(wanted,)),),
                timeout=timedelta(seconds=1),
            )
        )
        assert response.topics[0].partitions[0].error_code is ErrorCode.kafka_storage_error
    response = await bench.ask(
        DeleteRecordsRequest(
            topics=(
                DeleteRecordsTopic(
                    name="journal", partitions=(DeleteRecordsPartition(partition_index=sick, offset=0),)
                ),
            ),
            timeout=timedelta(seconds=1),
        )
    )
    assert response.topics[0].partitions[0].error_code is ErrorCode.kafka_storage_error
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_read_that_fails_in_list_offsets_is_a_storage_error_not_the_end_of_the_connection(
    bench: Bench,
) -> None:
    _, sick, _, failing = await spread_topic(bench)
    await bench.produce("journal", b"a", partition=sick)
    bench.disk.fail(failing, operations=frozenset({"read"}))
    wanted = ListOffsetsPartition(partition_index=sick, timestamp=1000)
    response = await bench.ask(
        ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=(ListOffsetsTopic(name="journal", partitions=(wanted,)),),
            timeout=timedelta(seconds=1),
        )
    )
    assert response.topics[0].partitions[0].error_code is ErrorCode.kafka_storage_error
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_who_waits_for_a_partition_hears_at_once_that_its_disk_failed(bench: Bench) -> None:
    topic_id, sick, _, failing = await spread_topic(bench)
    request = fetch_request(topic_id, fetched(partition=sick), max_wait=timedelta(seconds=9))
    poll = asyncio.create_task(bench.new_client("reader").request(request))
    await until(lambda: len(bench.broker.waiting_room) == 1)
    bench.disk.fail(failing)
    await bench.produce("journal", b"a", partition=sick)
    response = await asyncio.wait_for(poll, 1)
    assert response.responses[0].partitions[0].error_code is ErrorCode.kafka_storage_error
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_new_partitions_go_to_the_directory_that_is_left(bench: Bench) -> None:
    _, sick, _, failing = await spread_topic(bench)
    bench.disk.fail(failing)
    await bench.produce("journal", b"a", partition=sick)
    topic_id = await bench.create("later", 3)
    for partition in range(3):
        assert bench.broker.log_dirs.directory_of(TopicPartition("later", partition)) == "/one"
        assert (await bench.produce("later", b"a", partition=partition)).error_code is ErrorCode.none
    assert await bench.read(topic_id) == [b"a"]
    bench.disk.heal()


@on_broker(started=False, **METADATA_APART)  # type: ignore[arg-type]
async def test_after_a_start_without_a_directory_its_partitions_are_not_made_anew_elsewhere(
    bench: Bench,
) -> None:
    await bench.start()
    _, sick, sound, failing = await spread_topic(bench)
    await bench.produce("journal", b"precious", partition=sick)
    await bench.stop()
    bench.disk.fail(failing)
    await bench.start()
    assert (await bench.produce("journal", b"b", partition=sick)).error_code is ErrorCode.kafka_storage_error
    assert (await bench.produce("journal", b"b", partition=sound)).error_code is ErrorCode.none
    await bench.stop()
    await bench.start()
    assert (await bench.produce("journal", b"b", partition=sick)).base_offset == 1
    await bench.stop()


@on_broker(started=False, directories=TWO)
async def test_a_failed_directory_serves_again_after_it_was_mended_and_the_broker_restarted(
    bench: Bench,
) -> None:
    await bench.start()
    topic_id, sick, _, failing = await spread_topic(bench)
    for value in (b"a", b"b"):
        await bench.produce("journal", value, partition=sick)
    bench.disk.fail(failing, errno.ENOSPC, operations=frozenset({"write"}))
    assert (
        await bench.produce("journal", b"lost", partition=sick)
    ).error_code is ErrorCode.kafka_storage_error
    await bench.stop()
    await bench.start()
    assert await bench.read(topic_id, partition=sick) == [b"a", b"b"]
    assert (await bench.produce("journal", b"c", partition=sick)).base_offset == 2
    await bench.stop()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_an_offline_directory_is_described_as_such(bench: Bench) -> None:
    _, sick, _, failing = await spread_topic(bench)
    bench.disk.fail(failing)

    async def described() -> dict[str, tuple[ErrorCode, int]]:
        response = await bench.ask(DescribeLogDirsRequest(topics=None))
        return {
            result.log_dir: (result.error_code, sum(len(topic.partitions) for topic in result.topics))
            for result in response.results
        }

    # First the volume itself does not answer; then an append has met it, and it is offline.
    assert (await described())[failing] == (ErrorCode.kafka_storage_error, 0)
    await bench.produce("journal", b"a", partition=sick)
    assert await described() == {"/one": (ErrorCode.none, 2), "/two": (ErrorCode.kafka_storage_error, 0)}
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_flush_that_fails_is_no_acknowledgement(bench: Bench) -> None:
    _, sick, sound, failing = await spread_topic(bench, flush_messages="1")
    bench.disk.fail(failing, operations=frozenset({"sync"}))
    assert (await bench.produce("journal", b"a", partition=sick)).error_code is ErrorCode.kafka_storage_error
    assert (await bench.produce("journal", b"a", partition=sound)).error_code is ErrorCode.none
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_checkpoint_that_cannot_be_written_takes_its_directory_offline(bench: Bench) -> None:
    _, sick, sound, failing = await spread_topic(bench)
    await bench.produce("journal", b"a", partition=sick)
    bench.disk.fail(failing, operations=frozenset({"rename"}))
    await until(lambda: failing in bench.broker.log_dirs.offline)
    await asyncio.sleep(2)
    assert (await bench.produce("journal", b"b", partition=sick)).error_code is ErrorCode.kafka_storage_error
    assert (await bench.produce("journal", b"b", partition=sound)).error_code is ErrorCode.none
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_metadata_log_that_fails_ends_the_node(bench: Bench) -> None:
    failed = bench.broker.failed
    assert failed is not None
    await spread_topic(bench)
    bench.disk.fail("/meta")
    with pytest.raises(ConnectionError):
        await bench.client.create_topic("later", 1, {})
    assert isinstance(await asyncio.wait_for(failed, 5), OSError)
    with pytest.raises(ConnectionError):
        await bench.client.create_topic("later", 1, {})
    bench.disk.heal()


@on_broker(started=False, **METADATA_APART)  # type: ignore[arg-type]
async def test_a_broker_that_stopped_over_its_metadata_starts_again_with_all_that_was_committed(
    bench: Bench,
) -> None:
    await bench.start()
    topic_id, _, sound, _ = await spread_topic(bench)
    await bench.produce("journal", b"a", partition=sound)
    bench.disk.fail("/meta", operations=frozenset({"sync"}))
    with pytest.raises(ConnectionError):
        await bench.client.create_topic("later", 1, {})
    await bench.stop()
    await bench.start()
    assert await bench.read(topic_id, partition=sound) == [b"a"]
    await bench.stop()
