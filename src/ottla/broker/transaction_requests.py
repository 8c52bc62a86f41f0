"""What the handlers of transactions share."""

from ottla.model.errors import ErrorCode, KafkaError


def told_by_version(refused: KafkaError, version: int, first_with_fenced: int) -> ErrorCode:
    """Clients of older versions do not know PRODUCER_FENCED (KIP-588)."""
    if refused.code is ErrorCode.producer_fenced and version < first_with_fenced:
        return ErrorCode.invalid_producer_epoch
    return refused.code
