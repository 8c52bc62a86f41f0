"""What many responses consist of: for each topic its partitions, for each partition its index and an error code."""

from collections.abc import Iterator, Sequence
from struct import Struct

from ottla.model.errors import ErrorCode
from ottla.protocol.primitives import INT32, NO_TAGS
from ottla.protocol.varint import encode_uvarint

_ANSWER = Struct(">ih")
_FLEXIBLE_ANSWER = Struct(">ihB")

# A topic's name or id, as it is written, and the indexes of its partitions.
AnsweredTopic = tuple[bytes, Sequence[int]]


def encode_partition_codes(
    topics: Sequence[AnsweredTopic], codes: Iterator[ErrorCode], *, flexible: bool
) -> list[bytes]:
    """`codes` has one for each partition of `topics`, in their order."""
    if not flexible:
        parts = [INT32.pack(len(topics))]
        for topic, indexes in topics:
            parts += (topic, INT32.pack(len(indexes)))
            parts += [_ANSWER.pack(index, next(codes)) for index in indexes]
        return parts
    parts = [encode_uvarint(len(topics) + 1)]
    for topic, indexes in topics:
        parts += (topic, encode_uvarint(len(indexes) + 1))
        parts += [_FLEXIBLE_ANSWER.pack(index, next(codes), 0) for index in indexes]
        parts.append(NO_TAGS)
    return parts
