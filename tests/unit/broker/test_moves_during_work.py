"""A replica moves to another directory while a thread works with its log: the files of the old folder are gone then.

That is no failure of a disk, and must not take the directory offline that the replica is in now.
"""

import errno
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar, cast

import pytest
from kio.schema.list_offsets.v10.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.coordinators.test_shard_runtime import Codec, Counters
from tests.unit.broker.roles import OTHER, change_partition
from tests.unit.broker.test_replica_move import TWO, move, moved, other_directory

from ottla.broker.coordinators.shard_loader import load_shard
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.partition_flush import flush_partition
from ottla.broker.partition_truncation import truncate_partition
from ottla.core.partition.follower import PartitionFollower
from ottla.env import Env
from ottla.env.threads import Threads
from ottla.model.errors import ErrorCode, KafkaError

T = TypeVar("T")
GONE = FileNotFoundError(errno.ENOENT, "No such file or directory")


class MovingThreads:
    """The replica moves during the first work, which fails with `error`."""

    def __init__(self, bench: Bench, error: OSError | None) -> None:
        self._bench = bench
        self._error = error
        self._has_moved = False

    async def run(self, work: Callable[[], T]) -> T:
        if self._has_moved:
            return await self._bench.services.env.threads.run(work)
        self._has_moved = True
        result = work()
        assert await move(self._bench, other_directory(self._bench)) is ErrorCode.none
        await moved(self._bench)
        if self._error is not None:
            raise self._error
        return result

    def env(self) -> Env:
        return replace(self._bench.services.env, threads=cast(Threads, self))


async def journal(bench: Bench, records: int = 30) -> HostedPartition:
    await bench.create("journal", segment_bytes="1048576", min_insync_replicas="1")
    for number in range(records):
        await bench.produce("journal", str(number).encode())
    return bench.services.partitions.find_replica("journal", None, 0)


def check_online(bench: Bench) -> None:
    assert bench.services.log_dirs.offline == {}
    assert bench.services.partitions.find_replica("journal", None, 0).failure is None


@pytest.mark.parametrize("error", [None, GONE])
def test_a_shard_is_loaded_from_the_log_in_the_new_directory(error: OSError | None) -> None:
    @on_broker(directories=TWO)
    async def test(bench: Bench) -> None:
        hosted, shard = await journal(bench), Counters()
        env = MovingThreads(bench, error).env()
        await load_shard(env, hosted, shard, Codec(), 200, lambda: True)
        assert shard.counts == {"key": 29}
        check_online(bench)

    test()


@on_broker(directories=TWO)
async def test_a_flush_goes_on_with_the_log_in_the_new_directory(bench: Bench) -> None:
    hosted = await journal(bench)
    await flush_partition(MovingThreads(bench, GONE).env(), hosted)
    assert hosted.log.recovery_point == hosted.log.log_end_offset == 30
    check_online(bench)


@on_broker(directories=TWO)
async def test_a_truncation_is_tried_again(bench: Bench) -> None:
    hosted = await journal(bench)
    change_partition(bench, "journal", replicas=(1, OTHER), isr=(1, OTHER), leader=OTHER)
    follower = hosted.role
    assert isinstance(follower, PartitionFollower)
    threads = MovingThreads(bench, OSError(errno.EIO, "Input/output error"))
    with pytest.raises(KafkaError, match="moved"):
        await truncate_partition(threads.env(), hosted, follower, 10)
    check_online(bench)


@on_broker(directories=TWO)
async def test_list_offsets_is_tried_again_by_the_client(bench: Bench) -> None:
    await journal(bench)
    threads = MovingThreads(bench, GONE)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        timeout=timedelta(seconds=5),
        topics=(
            ListOffsetsTopic(
                name="journal", partitions=(ListOffsetsPartition(partition_index=0, timestamp=1),)
            ),
        ),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.services.record_thread, "run", threads.run)
        (topic,) = (await bench.new_client("reader").request(request)).topics
    assert topic.partitions[0].error_code is ErrorCode.kafka_storage_error
    check_online(bench)
    (topic,) = (await bench.ask(request)).topics
    assert topic.partitions[0].offset == 0
