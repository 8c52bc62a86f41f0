"""Kafka's error codes, and the exception that carries one to the client that caused it."""

from kio.schema.errors import ErrorCode

__all__ = ["ErrorCode", "KafkaError"]


class KafkaError(Exception):
    """A refusal in the protocol's terms: the code goes to the client, the message names the thing."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type["KafkaError"], tuple[ErrorCode, str]]:
        return type(self), (self.code, self.message)  # from a worker process to the broker

    def __str__(self) -> str:
        return f"{self.code.name.upper()}: {self.message}"
