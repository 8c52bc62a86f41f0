"""Where a follower truncates a log that has diverged from its leader's: by leader epochs, never by the high watermark.

A high watermark is known to a follower one fetch later than to its leader. A follower that cut its log there would lose
committed records if it became the leader next, or keep records that its leader does not have (KIP-101, KIP-279).
"""

from ottla.core.partition.epochs import LeaderEpochCache
from ottla.model.ids import NO_LEADER_EPOCH


def truncation_offset(
    epochs: LeaderEpochCache, log_end_offset: int, diverging_epoch: int, diverging_end_offset: int
) -> int:
    """The leader's log has `diverging_epoch` as its largest epoch up to the follower's, and it ends at the offset.

    If the follower does not have that epoch, it removes all later ones and asks again with what is left: the logs may
    differ in several epochs.
    """
    if diverging_epoch == NO_LEADER_EPOCH:
        return min(diverging_end_offset, log_end_offset)
    own_epoch, own_end_offset = epochs.end_offset_for(diverging_epoch, log_end_offset)
    if own_epoch == NO_LEADER_EPOCH:
        return min(diverging_end_offset, log_end_offset)
    if own_epoch != diverging_epoch:
        return min(own_end_offset, log_end_offset)
    return min(own_end_offset, diverging_end_offset, log_end_offset)
