"""Plans the offset checkpoints of data directories: which entries each file must get now."""

from collections.abc import Callable, Iterable, Mapping

from ottla.model.ids import TopicPartition
from ottla.storage.deletion import DeletionSync
from ottla.storage.log import Log
from ottla.storage.log_dir import (
    CHECKPOINTS,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    CheckpointWrite,
    LogDir,
)

Logs = Mapping[TopicPartition, Log]
Offsets = Mapping[TopicPartition, int]

_NO_OFFSETS: Offsets = {}


def plan_checkpoints(
    log_dirs: Iterable[LogDir], name: str, logs: Logs, high_watermarks: Offsets = _NO_OFFSETS
) -> list[CheckpointWrite]:
    """The checkpoint files of this name whose content has changed."""
    found = []
    for log_dir in log_dirs:
        offsets = current_offsets(log_dir, name, logs, high_watermarks)
        if offsets != log_dir.checkpointed(name):
            found.append(log_dir.plan_checkpoint(name, offsets))
    return found


def plan_deletion_sync(log_dir: LogDir, logs: Logs) -> DeletionSync:
    checkpoints = [
        log_dir.plan_checkpoint(name, current_offsets(log_dir, name, logs))
        for name in CHECKPOINTS
        if log_dir.stale_entries(name)
    ]
    renamed = tuple(log for logs in log_dir.renamed_logs.values() for log in logs)
    return DeletionSync(log_dir, checkpoints, renamed, log_dir.deletions)


def current_offsets(
    log_dir: LogDir, name: str, logs: Logs, high_watermarks: Offsets = _NO_OFFSETS
) -> dict[TopicPartition, int]:
    """The entries that the checkpoint file of this name must have now."""
    known, found = log_dir.checkpointed(name), {}
    for partition in log_dir.partitions | log_dir.unfinished_moves:
        log = logs.get(partition)
        # A partition that was not opened in this run keeps its entry from the last run.
        offset = known.get(partition)
        if name == HIGH_WATERMARKS:
            offset = high_watermarks.get(partition, offset or 0)
        elif log is not None and partition in log_dir.partitions:
            offset = _OFFSET_OF_LOG[name](log)
        if offset is not None:
            found[partition] = offset
    return found


def _log_start_offset(log: Log) -> int | None:
    """As in Kafka, None if the name of the first segment has the offset.

    Never beyond the last flush: otherwise a power loss could leave a log that ends before its start.
    """
    offset = min(log.log_start_offset, log.recovery_point)
    return offset if offset > log.segments.base_offsets[0] else None


_OFFSET_OF_LOG: dict[str, Callable[[Log], int | None]] = {
    RECOVERY_POINTS: lambda log: log.recovery_checkpoint,
    LOG_START_OFFSETS: _log_start_offset,
    CLEANER_OFFSETS: lambda log: log.clean_up_to,
}


def checkpointed_high_watermarks(log_dirs: Iterable[LogDir]) -> dict[TopicPartition, int]:
    """As the last run left them, of the partitions that have a folder."""
    return {
        partition: offset
        for log_dir in log_dirs
        for partition, offset in log_dir.high_watermarks.items()
        if partition in log_dir.partitions
    }
