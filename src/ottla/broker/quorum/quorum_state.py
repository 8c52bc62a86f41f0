"""The file `quorum-state` in Kafka's format: the epoch and the vote of a voter, which must survive a restart."""

import json
from collections.abc import Sequence
from typing import Any

from ottla.core.raft.ready import HardState
from ottla.env.disk import Disk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import uuid_from_string, uuid_to_string

QUORUM_STATE = "quorum-state"
_NO_DIRECTORY = "AAAAAAAAAAAAAAAAAAAAAA"


def read_quorum_state(disk: Disk, directory: str) -> HardState:
    """If the file is missing, the state of a voter that has never voted."""
    path = f"{directory}/{QUORUM_STATE}"
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return HardState()
    try:
        fields = json.loads(data)
        # Version 1 (KIP-853) adds the voted directory and has no voters: those are in the log.
        if fields["data_version"] not in (0, 1):
            raise ValueError(f"data_version {fields['data_version']} is not known")
        directory_id = uuid_from_string(fields.get("votedDirectoryId") or _NO_DIRECTORY)
        return HardState(
            int(fields["leaderEpoch"]),
            int(fields["leaderId"]),
            int(fields["votedId"]),
            directory_id if directory_id.int else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise KafkaError(
            ErrorCode.kafka_storage_error,
            f"{path} is not a quorum state ({error}). Its node may have voted in an epoch that is no longer known: "
            "restore the file, or remove the node's data and start it as a new node",
        ) from error


def read_static_voters(disk: Disk, directory: str) -> tuple[int, ...] | None:
    """The voters of the quorum with static voters (kraft.version 0) that the node has taken part in."""
    fields = _read_fields(disk, directory)
    if fields.get("data_version") != 0:
        return None
    return tuple(sorted(int(voter["voterId"]) for voter in fields.get("currentVoters") or ()))


def has_dynamic_voters(disk: Disk, directory: str) -> bool:
    """Whether the node has taken part in a quorum with voters in its log, or was formatted to join one (KIP-853)."""
    return bool(_read_fields(disk, directory).get("data_version") == 1)


def _read_fields(disk: Disk, directory: str) -> dict[str, Any]:
    path = f"{directory}/{QUORUM_STATE}"
    try:
        found = json.loads(disk.read_bytes(path))
    except (FileNotFoundError, ValueError):  # `read_quorum_state` reports damage
        return {}
    return found if isinstance(found, dict) else {}


def write_quorum_state(disk: Disk, directory: str, state: HardState, voters: Sequence[int] | None) -> None:
    """`voters` are static ones. None: they are in the log, from kraft.version 1 on."""
    path = f"{directory}/{QUORUM_STATE}"
    if voters is None:
        voted = state.voted_directory_id
        disk.write_atomically(
            path, _encode_v1(state, _NO_DIRECTORY if voted is None else uuid_to_string(voted))
        )
        return
    fields = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": 0,
    }
    disk.write_atomically(path, _encode(fields))


def _encode_v1(state: HardState, voted_directory_id: str) -> bytes:
    fields = {
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": voted_directory_id,
        "data_version": 1,
    }
    return _encode(fields)


def _encode(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
