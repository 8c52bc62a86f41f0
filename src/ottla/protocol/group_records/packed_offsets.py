"""A template of all records of a commit, in which only offsets, leader epochs and the timestamp vary."""

from collections.abc import Sequence
from itertools import accumulate

from ottla.protocol.byte_template import ByteTemplate
from ottla.protocol.group_records.codec import encode_key, encode_value
from ottla.protocol.group_records.records import OffsetCommitKey, OffsetCommitValue
from ottla.protocol.offset_commit_codec import OFFSET_FIELDS
from ottla.protocol.primitives import encode_compact_string
from ottla.records.records import encode_keyed_records

# The layout is version, offset, leader epoch, metadata, timestamp: see OffsetCommitValue.
_OFFSET_POSITION = 2
_METADATA_POSITION = 14
_AFTER_VALUE = 1  # the number of headers, 0


def offsets_template(records: Sequence[tuple[OffsetCommitKey, OffsetCommitValue]]) -> ByteTemplate:
    """The template of a batch's records; its stamp is the commit timestamp."""
    pairs = [(encode_key(key), encode_value(value)) for key, value in records]
    encoded = encode_keyed_records(pairs)
    ends = accumulate(map(len, encoded))
    starts = [end - _AFTER_VALUE - len(value) for end, (_, value) in zip(ends, pairs, strict=True)]
    stamps = [
        start + _METADATA_POSITION + len(encode_compact_string(value.metadata))
        for start, (_, value) in zip(starts, records, strict=True)
    ]
    positions = [start + _OFFSET_POSITION for start in starts]
    return ByteTemplate(b"".join(encoded), positions, OFFSET_FIELDS, stamps)
