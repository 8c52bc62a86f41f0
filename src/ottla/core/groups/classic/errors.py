"""Errors for members of classic groups."""

from ottla.model.errors import ErrorCode, KafkaError


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.unknown_member_id,
        f"Group {group_id} has no member {member_id!r}: join again without a member id.",
    )


def fenced_instance(group_id: str, group_instance_id: str | None, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.fenced_instance_id,
        f"Group instance {group_instance_id} of group {group_id} no longer has the member id {member_id!r}: two "
        "consumers have the same group.instance.id. Stop one of them.",
    )


def rebalance_in_progress(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.rebalance_in_progress, f"Group {group_id} is rebalancing: rejoin it.")
