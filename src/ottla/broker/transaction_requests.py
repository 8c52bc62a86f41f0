"""What the handlers of transactions share."""

from ottla.model.errors import ErrorCode, KafkaError


def error_code_for_version(error: KafkaError, version: int, first_with_fenced: int) -> ErrorCode:
    """The error's code, or the one that clients of versions without PRODUCER_FENCED know (KIP-588)."""
    if error.code is ErrorCode.producer_fenced and version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return error.code
