"""Decides the elections that an administrator asks for (KIP-460), and those of the controller's regular checks."""

from collections.abc import Collection, Iterable

from ottla.core.controller.cluster_edit import ClusterEdit
from ottla.core.controller.decision import NO_ERROR, ApiError, ControllerDecision
from ottla.core.controller.partition_change import Election
from ottla.core.controller.partition_commands import ElectionResult, ElectionType, ElectLeaders
from ottla.core.controller.partition_index import PartitionKey
from ottla.model.errors import ErrorCode, KafkaError

ELECTIONS_PER_REQUEST_MAX = 10_000


def decide_elect_leaders(
    edit: ClusterEdit, command: ElectLeaders
) -> ControllerDecision[tuple[ElectionResult, ...]]:
    if command.election_type not in ElectionType.__members__.values():
        raise KafkaError(ErrorCode.invalid_request, f"Unknown election type {command.election_type}")
    election_type = ElectionType(command.election_type)
    wanted = _all_partitions(edit) if command.partitions is None else command.partitions
    results: list[ElectionResult] = []
    for topic, index in wanted:
        error = _elect(edit, topic, index, election_type)
        if command.partitions is not None or error.code is not ErrorCode.election_not_needed:
            results.append(ElectionResult(topic, index, error))
        if len(edit.records) > ELECTIONS_PER_REQUEST_MAX:
            raise KafkaError(
                ErrorCode.policy_violation,
                f"More than {ELECTIONS_PER_REQUEST_MAX} partitions need an election. Name fewer of them in a request.",
            )
    return ControllerDecision(tuple(edit.records), tuple(results))


def decide_balance_leaders(edit: ClusterEdit) -> ControllerDecision[None]:
    return _elect_some(edit, edit.index.imbalanced, Election.PREFERRED)


def decide_elect_lost_leaders(edit: ClusterEdit) -> ControllerDecision[None]:
    return _elect_some(edit, edit.index.leaderless, None)


def _elect_some(
    edit: ClusterEdit, keys: Collection[PartitionKey], election: Election | None
) -> ControllerDecision[None]:
    for key in edit.take(keys):
        edit.change_partition(key, election=election)
    return edit.decision(None)


def _all_partitions(edit: ClusterEdit) -> Iterable[tuple[str, int]]:
    return ((topic.name, index) for topic in edit.image.topics.values() for index in topic.partitions)


def _elect(edit: ClusterEdit, name: str, index: int, election_type: ElectionType) -> ApiError:
    topic = edit.image.topics.get(name)
    if topic is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, f"No such topic as {name}")
    key = (topic.topic_id, index)
    partition = edit.partition(key)
    if partition is None:
        return ApiError(ErrorCode.unknown_topic_or_partition, f"No such partition as {name}-{index}")
    if election_type is ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            return ApiError(ErrorCode.election_not_needed)
        edit.change_partition(key, election=Election.PREFERRED)
        changed = edit.partition(key)
        # The change may have ended a reassignment, and elected nobody.
        if changed is None or changed.leader != changed.replicas[0]:
            return ApiError(ErrorCode.preferred_leader_not_available)
        return NO_ERROR
    if partition.has_leader:
        return ApiError(ErrorCode.election_not_needed)
    edit.change_partition(key, election=Election.UNCLEAN)
    changed = edit.partition(key)
    if changed is None or not changed.has_leader:
        return ApiError(ErrorCode.eligible_leaders_not_available)
    return NO_ERROR
