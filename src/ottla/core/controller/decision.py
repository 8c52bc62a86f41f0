"""What every command of the controller has in common: its decision, and the error of a part of it."""

import uuid
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.records import MetadataRecord

ResponseT = TypeVar("ResponseT")


@dataclass(frozen=True, slots=True)
class ControllerCommand(Generic[ResponseT]):
    """The type parameter is the type of the response."""

    def failed(self, error: KafkaError) -> ResponseT:
        """The response if the whole command fails. Commands without errors in their response raise the error."""
        raise error


class ControllerDecision(NamedTuple, Generic[ResponseT]):
    """The records of the change, committed atomically, and the response to send once they are.

    A change of very many partitions is decided in parts. `rest` has the partitions of the parts that follow: the
    command must be decided again with them, after the records and before any other command. The last part has the
    response.

    `follow_up` is a command that must be decided then, also before any other. The response waits for its records too.
    """

    records: tuple[MetadataRecord, ...]
    response: ResponseT
    rest: tuple[tuple[uuid.UUID, int], ...] = ()
    follow_up: "ControllerCommand[None] | None" = None


class ApiError(NamedTuple):
    """If `message` is None, the client describes the code itself."""

    code: ErrorCode = ErrorCode.none
    message: str | None = None


NO_ERROR = ApiError()
