"""Disks that fail or are full: their partitions are offline, the others are served (KIP-112)."""

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
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, until

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.sim.disk import WRITES
from ottla.storage.meta_properties import OfflineDirectoryError, UnusableDirectoryError

TWO = ("/one", "/two")
METADATA_APART = {"directories": (*TWO, "/meta"), "metadata_log_dir": "/meta", "log_dirs": ",".join(TWO)}


async def spread_topic(bench: Bench, **configs: str) -> tuple[Any, int, int, str]:
    """(topic id, a partition in the directory that will fail, one in the other, the directory that will fail)"""
    topic_id = await bench.create("journal", 4, **configs)
    directories = {
        index: bench.services.log_dirs.directory_of(TopicPartition("journal", index)) for index in range(4)
    }
    failing = "/two"
    sick = next(index for index, path in directories.items() if path == failing)
    sound = next(index for index, path in directories.items() if path != failing)
    return topic_id, sick, sound, failing


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_directory_that_cannot_be_written_takes_only_its_own_partitions_offline(error: int) -> None:
    @on_broker(**METADATA_APART)  # type: ignore[arg-type]
    async def run(bench: Bench) -> None:
        topic_id, sick, sound, failing = await spread_topic(bench)
        for partition in (sick, sound):
            await bench.produce("journal", b"a", partition=partition)
        bench.disk.fail(failing, error, operations=WRITES)
        answer = await bench.produce("journal", b"b", partition=sick)
        assert answer.error_code is ErrorCode.kafka_storage_error
        assert failing in answer.error_message
        assert "Fix the disk and restart the broker" in answer.error_message
        assert (await bench.produce("journal", b"b", partition=sound)).base_offset == 1
        assert await bench.read(topic_id, partition=sound) == [b"a", b"b"]
        response = await bench.ask(fetch_request(topic_id, fetched(partition=sick)))
        assert response.responses[0].partitions[0].error_code is ErrorCode.kafka_storage_error
        assert not bench.broker.failed.done()
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
async def test_delayed_requests_get_an_error_as_soon_as_the_disk_fails(bench: Bench) -> None:
    topic_id, sick, _, failing = await spread_topic(bench)
    request = fetch_request(topic_id, fetched(partition=sick), max_wait=timedelta(seconds=9))
    poll = asyncio.create_task(bench.new_client("reader").request(request))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    bench.disk.fail(failing)
    await bench.produce("journal", b"a", partition=sick)
    response = await asyncio.wait_for(poll, 1)
    assert response.responses[0].partitions[0].error_code is ErrorCode.kafka_storage_error
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_new_partitions_are_placed_in_the_directory_that_is_left(bench: Bench) -> None:
    _, sick, _, failing = await spread_topic(bench)
    bench.disk.fail(failing)
    await bench.produce("journal", b"a", partition=sick)
    topic_id = await bench.create("later", 3)
    for partition in range(3):
        assert bench.services.log_dirs.directory_of(TopicPartition("later", partition)) == "/one"
        assert (await bench.produce("later", b"a", partition=partition)).error_code is ErrorCode.none
    assert await bench.read(topic_id) == [b"a"]
    bench.disk.heal()


@on_broker(started=False, **METADATA_APART)  # type: ignore[arg-type]
async def test_after_a_start_without_a_directory_its_partitions_are_not_created_in_another(
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
async def test_a_failed_directory_serves_again_after_the_disk_is_fixed_and_the_broker_restarted(
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

    # First the disk does not respond; then an append has failed, and the directory is offline.
    assert (await described())[failing] == (ErrorCode.kafka_storage_error, 0)
    await bench.produce("journal", b"a", partition=sick)
    assert await described() == {"/one": (ErrorCode.none, 2), "/two": (ErrorCode.kafka_storage_error, 0)}
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_failed_flush_acknowledges_nothing(bench: Bench) -> None:
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
    await until(lambda: failing in bench.services.log_dirs.offline)
    await asyncio.sleep(2)
    assert (await bench.produce("journal", b"b", partition=sick)).error_code is ErrorCode.kafka_storage_error
    assert (await bench.produce("journal", b"b", partition=sound)).error_code is ErrorCode.none
    bench.disk.heal()


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_failed_metadata_log_stops_the_node(bench: Bench) -> None:
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
async def test_a_broker_that_stopped_because_of_its_metadata_log_restarts_with_everything_committed(
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


@on_broker(directories=TWO, metadata_log_dir="/one")
async def test_a_broker_without_any_directory_stops_with_the_reason(bench: Bench) -> None:
    _, sick, sound, failing = await spread_topic(bench)
    failed = bench.broker.failed
    assert failed is not None
    bench.disk.fail(failing, errno.ENOSPC, operations=WRITES)
    await bench.produce("journal", b"a", partition=sick)
    assert not failed.done()
    bench.disk.fail("/one", errno.ENOSPC, operations=WRITES)
    await bench.produce("journal", b"a", partition=sound)
    error = await asyncio.wait_for(failed, 1)
    assert isinstance(error, OfflineDirectoryError)
    assert "every data directory is offline (/two: " in str(error)
    assert "/one: " in str(error)
    bench.disk.heal()


@on_broker(directories=TWO, metadata_log_dir="/one")
async def test_a_broker_stops_when_the_directory_of_its_metadata_goes_offline(bench: Bench) -> None:
    _, _, sound, _ = await spread_topic(bench)
    failed = bench.broker.failed
    assert failed is not None
    bench.disk.fail("/one/journal-" + str(sound))
    await bench.produce("journal", b"a", partition=sound)
    error = await asyncio.wait_for(failed, 1)
    assert "the data directory of the metadata log is offline (/one: " in str(error)
    bench.disk.heal()


@on_broker(started=False, directories=TWO, metadata_log_dir="/one")
async def test_a_broker_does_not_start_without_the_directory_of_its_metadata(bench: Bench) -> None:
    bench.disk.fail("/one")
    with pytest.raises(UnusableDirectoryError, match="the metadata log lies in /one, which is offline"):
        await bench.start()


@pytest.mark.parametrize(
    ("error", "operations"),
    [(errno.EIO, None), (errno.ENOSPC, WRITES), (errno.EROFS, frozenset({"make_dirs"}))],
)
def test_a_topic_that_is_created_when_a_disk_fails_is_placed_on_the_other(
    error: int, operations: frozenset[str] | None
) -> None:
    @on_broker(**METADATA_APART)  # type: ignore[arg-type]
    async def run(bench: Bench) -> None:
        bench.disk.fail("/one", error, operations=operations)
        topic_id = await bench.create("later", 4)
        for partition in range(4):
            assert bench.services.log_dirs.directory_of(TopicPartition("later", partition)) == "/two"
            assert (await bench.produce("later", b"a", partition=partition)).error_code is ErrorCode.none
        assert await bench.read(topic_id, partition=3) == [b"a"]
        assert list(bench.services.log_dirs.offline) == ["/one"]
        bench.disk.heal()

    run()


NO_DESCRIPTORS = frozenset({"open", "map", "reserve", "sync_dir", "list_dir", "lock", "read"})


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_running_out_of_descriptors_fails_the_request_and_nothing_else(error: int) -> None:
    @on_broker(started=False, log_segment_bytes="1048576", log_index_interval_bytes="100")
    async def run(bench: Bench) -> None:
        await bench.start()
        topic_id = await bench.create("journal", 1)
        big = bytes(700_000)
        await bench.produce("journal", big)
        bench.disk.fail("/data/journal-0", error, operations=NO_DESCRIPTORS)
        for _ in range(2):  # the roll for the second batch fails too
            refused = await bench.produce("journal", big)
            assert refused.error_code is ErrorCode.kafka_storage_error
            assert "This is not a disk failure: try again" in refused.error_message
        assert not bench.services.log_dirs.offline
        bench.disk.heal()
        # The next one fits into the segment that could not be rolled.
        assert (await bench.produce("journal", b"small")).base_offset == 1
        assert (await bench.produce("journal", big)).base_offset == 2
        await bench.kill()
        await bench.start()
        assert (await bench.produce("journal", b"after")).base_offset == 3
        assert await bench.read(topic_id, offset=1) == [b"small"]
        assert await bench.read(topic_id, offset=3) == [b"after"]
        await bench.stop()

    run()


def test_acknowledged_records_survive_running_out_of_descriptors_at_any_moment() -> None:
    @on_broker(
        started=False,
        log_segment_bytes="1048576",
        log_index_interval_bytes="0",
        log_index_size_max_bytes="64",
    )
    async def run(bench: Bench) -> None:
        await bench.start()
        topic_id = await bench.create("journal", 1)
        expected: list[bytes] = []
        for round_ in range(6):
            for number in range(40):
                value = b"%d-%d" % (round_, number)
                operation = sorted(NO_DESCRIPTORS)[number % len(NO_DESCRIPTORS)]
                bench.disk.fail(
                    "/data/journal-0", errno.EMFILE, operations=frozenset({operation}), times=1 + number % 3
                )
                answer = await bench.produce("journal", value)
                if answer.error_code is ErrorCode.none:
                    assert answer.base_offset == len(expected)
                    expected.append(value)
                else:
                    assert answer.error_code is ErrorCode.kafka_storage_error
                if number % 5 == 0:
                    bench.disk.heal()
            bench.disk.heal()
            assert not bench.services.log_dirs.offline
            await (bench.kill if round_ % 2 else bench.stop)()
            await bench.start()
            found: list[bytes | None] = []
            while len(found) < len(expected):
                found += await bench.read(topic_id, offset=len(found))
            assert found == expected
        assert len(expected) > 40
        await bench.stop()

    run()


@on_broker(directories=TWO)
async def test_a_topic_without_descriptors_is_opened_as_soon_as_there_are_some(bench: Bench) -> None:
    for path in TWO:
        bench.disk.fail(f"{path}/later-0", errno.EMFILE, operations=NO_DESCRIPTORS)
    topic_id = await bench.create("later", 1)
    assert (await bench.produce("later", b"a")).error_code is ErrorCode.kafka_storage_error
    await asyncio.sleep(5)
    bench.disk.heal()
    await asyncio.sleep(2)
    assert (await bench.produce("later", b"a")).base_offset == 0
    assert await bench.read(topic_id) == [b"a"]
    folders = [path for path in TWO if "later-0" in bench.disk.list_dir(path)]
    assert len(folders) == 1


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_metadata_log_without_descriptors_waits_for_them(bench: Bench) -> None:
    bench.disk.fail("/meta", errno.EMFILE, operations=frozenset({"sync"}))
    creating = asyncio.create_task(bench.create("later"))
    await asyncio.sleep(5)
    assert not creating.done()
    bench.disk.heal()
    await asyncio.wait_for(creating, 5)
    assert not bench.broker.failed.done()
    assert (await bench.produce("later", b"a")).error_code is ErrorCode.none


@on_broker(**METADATA_APART)  # type: ignore[arg-type]
async def test_a_flush_without_descriptors_acknowledges_nothing_before_it_is_done(bench: Bench) -> None:
    await bench.create("journal", flush_messages="1")
    await bench.produce("journal", b"a")
    bench.disk.fail("/", errno.EMFILE, operations=frozenset({"sync", "sync_dir"}))
    producing = asyncio.create_task(bench.produce("journal", b"b", acks=1))
    await asyncio.sleep(3)
    assert not producing.done()
    bench.disk.heal()
    assert (await asyncio.wait_for(producing, 1)).base_offset == 1


@on_broker(started=False)
async def test_a_stop_without_descriptors_is_not_clean(bench: Bench) -> None:
    await bench.start()
    topic_id = await bench.create("journal")
    for value in (b"a", b"b"):
        await bench.produce("journal", value)
    bench.disk.fail("/data/journal-0", errno.EMFILE, operations=NO_DESCRIPTORS)
    await bench.stop()
    assert ".kafka_cleanshutdown" not in bench.disk.list_dir("/data")
    await bench.start()
    assert await bench.read(topic_id) == [b"a", b"b"]
    await bench.stop()


@on_broker(started=False)
async def test_a_broker_does_not_start_if_its_only_directory_fails_while_logs_are_opened(
    bench: Bench,
) -> None:
    await bench.start()
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    await bench.stop()
    bench.disk.fail("/data/journal-0")
    with pytest.raises(OfflineDirectoryError, match="every data directory is offline"):
        await bench.start()
    await bench.start()
    assert await bench.read(topic_id) == [b"a"]
    await bench.stop()
