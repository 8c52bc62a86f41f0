"""The replicas that an administrator chooses for a partition: the checks, and the directory of a new replica."""

import uuid
from collections import Counter

from ottla.core.controller.image import UNASSIGNED_DIRECTORY, MetadataImage
from ottla.model.errors import ErrorCode, KafkaError


def check_replicas(image: MetadataImage, replicas: tuple[int, ...], expected: int | None = None) -> None:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT). `expected` is the number of replicas, if it is given."""
    reason = None
    unknown = [broker for broker in replicas if broker not in image.brokers]
    repeated = [broker for broker, count in Counter(replicas).items() if count > 1]
    if not replicas:
        reason = "includes an empty replica list."
    elif unknown:
        reason = f"includes broker {unknown[0]}, but no such broker is registered."
    elif repeated:
        reason = f"includes the broker {repeated[0]} more than once."
    elif expected is not None and len(replicas) != expected:
        reason = (
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent with previous "
            f"partitions, which have {expected} replica(s)."
        )
    if reason is not None:
        raise KafkaError(ErrorCode.invalid_replica_assignment, f"The manual partition assignment {reason}")


def new_directory(image: MetadataImage, broker_id: int) -> uuid.UUID | None:
    """If the broker has several, it chooses one and reports it to the controller (KIP-858)."""
    log_dirs = image.brokers[broker_id].log_dirs
    if not log_dirs:
        return None
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY
