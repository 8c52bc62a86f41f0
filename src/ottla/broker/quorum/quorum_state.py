"""The file `quorum-state` in Kafka's format: the epoch and the vote of a voter, which must survive a restart."""

import json
from collections.abc import Sequence

from ottla.core.raft.ready import HardState
from ottla.env.disk import Disk
from ottla.model.errors import ErrorCode, KafkaError

QUORUM_STATE = "quorum-state"


def read_quorum_state(disk: Disk, directory: str) -> HardState:
    """If the file is missing, the state of a voter that has never voted."""
    path = f"{directory}/{QUORUM_STATE}"
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return HardState()
    try:
        fields = json.loads(data)
        # Version 1 (KIP-853) adds the voted directory and has no voters; neither is needed here.
        if fields["data_version"] not in (0, 1):
            raise ValueError(f"data_version {fields['data_version']} is not known")
        return HardState(int(fields["leaderEpoch"]), int(fields["leaderId"]), int(fields["votedId"]))
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{path} is not a quorum state ({error}). Its node may have voted in an epoch that is no longer known: "
            "restore the file, or remove the node's data and start it as a new node",
        ) from error


def write_quorum_state(disk: Disk, directory: str, state: HardState, voters: Sequence[int]) -> None:
    fields = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    data = json.dumps(fields, separators=(",", ":")).encode()
    disk.write_atomically(f"{directory}/{QUORUM_STATE}", data)
