"""Whether a node votes for a candidate (KIP-595), or would (KIP-996)."""

from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.messages import EPOCH_MAX, NO_NODE, VoteRequest
from ottla.core.raft.ready import HardState
from ottla.core.raft.roles import Follower, Leader, Role
from ottla.core.raft.voter_set import ReplicaKey, Voter


def is_valid_vote(request: VoteRequest) -> bool:
    epoch_max = request.epoch if request.is_pre_vote else request.epoch - 1
    has_valid_end = request.log_end.offset >= 0 and 0 <= request.log_end.epoch <= epoch_max
    return request.candidate_id >= 0 and request.epoch < EPOCH_MAX and has_valid_end


def grants_vote(role: Role, state: HardState, log_end: OffsetAndEpoch, request: VoteRequest) -> bool:
    """The node is in the epoch of the request.

    KIP-853: neither the candidate nor this node need be voters in this node's log, which may be behind: the candidate
    counts the votes of the voters in its own log only.
    """
    is_up_to_date = request.log_end.is_up_to_date_with(log_end)
    match role:
        case Leader():
            return False
        case Follower(has_fetched=has_fetched) if request.is_pre_vote:
            return is_up_to_date and not has_fetched
        case _ if request.is_pre_vote:
            return is_up_to_date
    if state.voted_id != NO_NODE:
        voted = Voter(state.voted_id, state.voted_directory_id)
        return voted.is_replica(ReplicaKey(request.candidate_id, request.candidate_directory_id))
    return state.leader_id == NO_NODE and is_up_to_date
