"""Records of `__transaction_state` as bytes. Version 0 is what releases before transaction.version 1 write."""

from typing import Any

from ottla.protocol import coordinator_codec
from ottla.protocol.coordinator_codec import decode_key, decode_value
from ottla.protocol.transaction_records.records import TransactionLogKey, TransactionLogValue

KEY_TYPES: dict[int, type[Any]] = {TransactionLogKey.__api_key__: TransactionLogKey}


def encode_key(key: TransactionLogKey) -> bytes:
    return coordinator_codec.encode_key(key)


def encode_value(value: TransactionLogValue) -> bytes:
    return coordinator_codec.encode_value(value, value.__version__)


def decode_record(
    key: bytes, value: bytes | None
) -> tuple[TransactionLogKey, TransactionLogValue | None] | None:
    """None for types of newer releases.

    Raises KafkaError: CORRUPT_MESSAGE for bytes that are no record, UNSUPPORTED_VERSION for a newer release's.
    """
    log_key = decode_key(key, KEY_TYPES)
    if log_key is None:
        return None
    return log_key, None if value is None else decode_value(value, TransactionLogValue)
