"""Truncates the log of a partition that this broker follows. Threads read and write what the truncation needs first."""

from ottla.broker.hosted_partition import HostedPartition
from ottla.core.partition.follower import PartitionFollower
from ottla.env import Env
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.truncation import prepare_read


async def truncate_partition(
    env: Env, hosted: HostedPartition, follower: PartitionFollower, offset: int
) -> None:
    """Does nothing if the role has changed meanwhile. Raises KafkaError if the disk fails, or to be called again."""
    log = hosted.log
    before = (log.truncations, log.log_end_offset)
    remaining = problem = None
    try:
        remaining = await env.threads.run(prepare_read(log, offset))
        await _lower_recovery_point(env, hosted, offset)
    except FileNotFoundError as error:
        problem = f"a file was removed while it was read: {error}"
    except OSError as error:
        raise hosted.storage_failed(error, log) from error
    if _is_obsolete(hosted, follower):
        return
    if hosted.log is not log or (log.truncations, log.log_end_offset) != before:
        problem = "its log has changed while it was read"
    if problem is not None:
        raise KafkaError(
            ErrorCode.kafka_storage_error, f"{hosted.topic_partition} is not truncated yet: {problem}"
        )
    hosted.truncate(offset, env.clock.now_ms(), remaining)


async def start_partition_again(
    env: Env, hosted: HostedPartition, follower: PartitionFollower, offset: int
) -> None:
    """Removes all records: the next one has `offset`. Does nothing if the role has changed meanwhile."""
    try:
        await _lower_recovery_point(env, hosted, offset)
    except OSError as error:
        raise hosted.storage_failed(error) from error
    if not _is_obsolete(hosted, follower):
        hosted.start_again_at(offset, env.clock.now_ms())


async def _lower_recovery_point(env: Env, hosted: HostedPartition, offset: int) -> None:
    """As in Kafka's LogManager.truncateTo, but before the log is cut, so that a crash in between does no harm.

    Recovery trusts the records below the checkpointed recovery point. After the truncation other records come there.
    """
    while (checkpoint := hosted.plan_truncation(offset)) is not None:
        await env.threads.run(checkpoint.write)
        checkpoint.complete()


def _is_obsolete(hosted: HostedPartition, follower: PartitionFollower) -> bool:
    return hosted.role is not follower or hosted.is_closed or hosted.failure is not None
