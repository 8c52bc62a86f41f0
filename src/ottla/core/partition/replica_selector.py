"""Which replica a consumer should read from (KIP-392): one in its own rack, if the broker is configured so."""

from collections.abc import Mapping

from ottla.core.partition.leader import PartitionLeader

RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_replica(
    leader: PartitionLeader, leader_id: int, fetch_offset: int, client_rack: str, racks: Mapping[int, str]
) -> int | None:
    """The in-sync follower in the client's rack that has most of the log; None if the client should read here.

    `racks` has the racks of the brokers that are active.
    """
    if not client_rack or racks.get(leader_id) == client_rack:
        return None
    candidates = [
        (-follower.log_end_offset, replica_id)
        for replica_id, follower in leader.replicas.followers.items()
        if replica_id in leader.isr
        and racks.get(replica_id) == client_rack
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
    ]
    return min(candidates)[1] if candidates else None
