"""Kafka's error codes, and the exception that carries one."""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """An error with a Kafka error code for the client, and a message."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type["KafkaError"], tuple[ErrorCode, str]]:
        return type(self), (self.code, self.message)  # for errors from a cleaner process

    def __str__(self) -> str:
        return f"{self.code.name.upper()}: {self.message}"
