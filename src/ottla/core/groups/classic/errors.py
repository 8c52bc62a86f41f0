"""What a member of a classic group is told where it is refused."""

from ottla.model.errors import ErrorCode, KafkaError


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.unknown_member_id,
        f"Group {group_id} has no member {member_id!r}: join it anew, without a member id.",
    )


def fenced_instance(group_id: str, group_instance_id: str | None, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.fenced_instance_id,
        f"Group instance {group_instance_id} of group {group_id} has another member id than {member_id!r} by now: "
        "two consumers have the same group.instance.id, stop one of them.",
    )


def rebalance_in_progress(group_id: str) -> KafkaError:
    return KafkaError(ErrorCode.rebalance_in_progress, f"Group {group_id} rebalances: rejoin it.")
