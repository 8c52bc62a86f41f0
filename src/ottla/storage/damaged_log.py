"""Errors for logs that must not be opened. Their files stay as they are; a person has to decide."""

import uuid

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import uuid_to_string
from ottla.storage.file_names import PARTITION_METADATA


class InconsistentTopicIdError(KafkaError):
    """The partition.metadata of a folder has another topic id than the topic with its name."""

    def __init__(self, directory: str, recorded: uuid.UUID, topic_id: uuid.UUID) -> None:
        super().__init__(
            ErrorCode.inconsistent_topic_id,
            f"{directory}/{PARTITION_METADATA} has the topic id {uuid_to_string(recorded)}, but the topic with this "
            f"name has the id {uuid_to_string(topic_id)}",
        )


class DamagedLogError(KafkaError):
    """The batch at `position` of `path` is damaged. It is below `flushed_offset`, so it is not a torn write."""

    def __init__(self, path: str, position: int, offset: int, flushed_offset: int) -> None:
        self.path = path
        self.position = position
        self.offset = offset
        self.flushed_offset = flushed_offset
        directory, _, _ = path.rpartition("/")
        checkpoint = f"{directory.rpartition('/')[0]}/recovery-point-offset-checkpoint"
        super().__init__(
            ErrorCode.kafka_storage_error,
            f"{self.description}. Restore the file from a backup. To give up all records from offset {offset} on "
            f"instead, stop the broker, remove the line of {directory.rpartition('/')[2]} from {checkpoint}, and start "
            "the broker",
        )

    @property
    def description(self) -> str:
        return (
            f"{self.path} is damaged at position {self.position}, which is offset {self.offset}, although the log was "
            f"flushed up to offset {self.flushed_offset}. This is not a torn write, so nothing was truncated"
        )

    def __reduce__(self) -> tuple[type["DamagedLogError"], tuple[str, int, int, int]]:  # type: ignore[override]
        return type(self), (self.path, self.position, self.offset, self.flushed_offset)
