"""Which leaders propose to remove a silent follower from the ISR."""

import asyncio

from tests.unit.broker.broker_bench import Bench, on_broker, until
from tests.unit.broker.roles import OTHER, change_partition, hosted_partition

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.partition.leader import PartitionLeader
from ottla.model.errors import ErrorCode, KafkaError


def record_proposals(bench: Bench) -> list[tuple[int, ...]]:
    """The ISRs that leaders propose from now on. No controller decides on them."""
    proposals: list[tuple[int, ...]] = []

    def record(hosted: HostedPartition, leader: PartitionLeader, isr: tuple[int, ...]) -> None:
        proposals.append(isr)

    bench.services.partitions.on_isr_proposed = record
    return proposals


@on_broker(replica_lag_time_max_ms="2000")
async def test_a_follower_that_was_added_within_the_leader_epoch_is_removed_when_it_lags(
    bench: Bench,
) -> None:
    """A reassignment from one replica to two does not raise the leader epoch."""
    await bench.create("journal")
    proposals = record_proposals(bench)
    change_partition(bench, replicas=(1, OTHER), isr=(1, OTHER))
    await bench.produce("journal", b"a", acks=1)
    await until(lambda: proposals == [(1,)])


@on_broker(replica_lag_time_max_ms="2000")
async def test_a_leader_whose_disk_has_failed_proposes_nothing(bench: Bench) -> None:
    """Else it would be the last in-sync replica, and no other could be elected."""
    await bench.create("journal", partitions=2)
    proposals = record_proposals(bench)
    for index in (0, 1):
        change_partition(bench, index=index, leader=1, replicas=(1, OTHER), isr=(1, OTHER))
        await bench.produce("journal", b"a", partition=index, acks=1)
    hosted = hosted_partition(bench)
    hosted.fail(KafkaError(ErrorCode.kafka_storage_error, "the disk has failed"))
    await until(lambda: bool(proposals))
    await asyncio.sleep(10)
    assert proposals == [(1,)]
    assert hosted.leader.replicas.proposed is None
