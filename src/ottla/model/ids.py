"""Topic partitions, the numbers that mean "none", and Kafka's text form of UUIDs (22 characters, URL-safe base64)."""

import base64
import uuid
from typing import NamedTuple

NO_OFFSET = -1
NO_TIMESTAMP = -1
NO_LEADER_EPOCH = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

ZERO_UUID = uuid.UUID(int=0)
METADATA_TOPIC = "__cluster_metadata"
# KIP-500: the id of the metadata topic is fixed, so that it can be fetched before any metadata is known.
METADATA_TOPIC_ID = uuid.UUID(int=1)


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_string(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def uuid_from_string(text: str) -> uuid.UUID:
    """Raises ValueError if `text` is not 16 bytes in URL-safe base64."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a UUID: it has {len(raw)} bytes, not 16")
    return uuid.UUID(bytes=raw)
