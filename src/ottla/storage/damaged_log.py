"""The errors for logs that must not be opened: nothing in them is touched, a person has to decide."""

import uuid

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import uuid_to_string
from ottla.storage.file_names import PARTITION_METADATA


class OtherTopicError(KafkaError):
    """A folder whose partition.metadata has the id of another topic than the one with its name."""

    def __init__(self, directory: str, recorded: uuid.UUID, topic_id: uuid.UUID) -> None:
        super().__init__(
            ErrorCode.inconsistent_topic_id,
            f"{directory}/{PARTITION_METADATA} has the topic id {uuid_to_string(recorded)}, but the topic with this "
            f"name has the id {uuid_to_string(topic_id)}",
        )


class DamagedLogError(KafkaError):
    """A batch that cannot be read at `position` of the file at `path`, below `flushed_offset`: no torn tail."""

    def __init__(self, path: str, position: int, offset: int, flushed_offset: int) -> None:
        self.path = path
        self.position = position
        self.offset = offset
        self.flushed_offset = flushed_offset
        directory, _, _ = path.rpartition("/")
        checkpoint = f"{directory.rpartition('/')[0]}/recovery-point-offset-checkpoint"
        super().__init__(
            ErrorCode.kafka_storage_error,
            f"{self.where}. Restore the file from a backup. To give up all records from offset {offset} on instead, "
            f"stop the broker, remove the line of {directory.rpartition('/')[2]} from {checkpoint}, and start again",
        )

    @property
    def where(self) -> str:
        return (
            f"{self.path} is damaged at position {self.position}, which is offset {self.offset}, and the log was "
            f"on disk up to offset {self.flushed_offset}: this is no torn tail, and nothing was cut off"
        )

    def __reduce__(self) -> tuple[type["DamagedLogError"], tuple[str, int, int, int]]:  # type: ignore[override]
        return type(self), (self.path, self.position, self.offset, self.flushed_offset)
