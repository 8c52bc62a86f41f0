"""The replica that a consumer is sent to (KIP-392)."""

import pytest

from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.leader import LeaderSettings, PartitionLeader
from ottla.core.partition.log_offsets import MutableLogOffsets
from ottla.core.partition.producers import ProducerStateTable
from ottla.core.partition.replica_selector import preferred_replica

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def leader() -> PartitionLeader:
    """Broker 1 leads; 2 has copied up to offset 50, 3 up to 80, 4 is not in sync."""
    found = PartitionLeader(
        MutableLogOffsets(0, 100), ProducerStateTable(), LeaderEpochCache(), leader_epoch=1, high_watermark=50,
        local_id=1, replica_ids=(1, 2, 3, 4), isr=(1, 2, 3), settings=LeaderSettings(), now_ms=0, partition_epoch=1,
    )  # fmt: skip
    for replica_id, end_offset in ((2, 50), (3, 80), (4, 90)):
        follower = found.replicas.followers[replica_id]
        follower.log_start_offset, follower.log_end_offset = 0, end_offset
    return found


@pytest.mark.parametrize(
    ("rack", "offset", "chosen"),
    [
        ("b", 40, 3),  # it has the most of the log
        ("b", 80, 3),
        ("b", 81, None),  # no follower in the rack has that offset
        ("a", 40, None),  # the leader is in the client's rack
        ("c", 40, None),  # not in sync
        ("", 40, None),
        ("elsewhere", 40, None),
    ],
)
def test_a_consumer_is_sent_to_an_in_sync_replica_of_its_rack(
    rack: str, offset: int, chosen: int | None
) -> None:
    assert preferred_replica(leader(), 1, offset, rack, RACKS) == chosen


def test_a_broker_that_is_not_active_is_not_chosen() -> None:
    assert preferred_replica(leader(), 1, 40, "b", {1: "a", 2: "b"}) == 2
