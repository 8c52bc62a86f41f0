"""Snapshots of the metadata in Kafka's `.checkpoint` files (KIP-630): a header, the records of an image, a footer.

The name of a file has the offset where the log continues after it, and the epoch of its last record.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord

from ottla.broker.quorum.membership_records import encode_membership
from ottla.core.raft.voter_set import MembershipRecord
from ottla.env.disk import Disk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX, decode_record, encode_record
from ottla.protocol.metadata_records.records import MetadataRecord
from ottla.records.control import build_control_batch, read_control_record
from ottla.records.header import HEADER_SIZE, MAGIC, crc_matches, read_header
from ottla.records.records import Record, build_batch, read_batches

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"
RECORDS_PER_BATCH = 2000
_REMEDY = (
    "Restore it from a backup. If the log still begins at offset 0 or at an older snapshot, moving the file out of the "
    "directory is enough"
)
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Sorted, the oldest first."""
    if not disk.exists(directory):
        return []
    matches = map(_NAME.fullmatch, disk.list_dir(directory))
    return sorted(SnapshotId(int(match[1]), int(match[2])) for match in matches if match)


def encode_snapshot(
    records: Iterable[MetadataRecord],
    *,
    epoch: int,
    last_contained_log_timestamp: int,
    now_ms: int,
    metadata_version: int = METADATA_VERSION_MAX,
    membership: Iterable[MembershipRecord] = (),
) -> bytes:
    """The bytes of a snapshot file. The offsets in it start at 0 and have no meaning.

    As in Kafka, the records that say who votes are beside the header (KIP-853).
    """
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_contained_log_timestamp)
    first = [header, *encode_membership(membership)]
    parts = [build_control_batch(first, base_offset=0, timestamp=now_ms, leader_epoch=epoch)]
    offset = len(first)
    values = (encode_record(record, metadata_version) for record in records)
    while chunk := list(islice(values, RECORDS_PER_BATCH)):
        parts.append(
            build_batch(
                (Record(offset + index, now_ms, None, value) for index, value in enumerate(chunk)),
                leader_epoch=epoch,
            )
        )
        offset += len(chunk)
    footer = SnapshotFooterRecord(version=0)
    parts.append(build_control_batch([footer], base_offset=offset, timestamp=now_ms, leader_epoch=epoch))
    return b"".join(parts)


def decode_snapshot(data: bytes, path: str) -> Iterator[MetadataRecord]:
    """The records of a snapshot file. Raises KafkaError if it is incomplete or damaged."""
    try:
        batches = read_batches(data)
        controls = [
            read_control_record(record)
            for batch in batches
            if batch.header.is_control
            for record in batch.records
        ]
    except KafkaError as error:
        raise KafkaError(
            error.code,
            f"the metadata snapshot {path} is damaged at position {_damaged_at(data)}: {error.message}. {_REMEDY}",
        ) from error
    if (
        not controls
        or not isinstance(controls[0], SnapshotHeaderRecord)
        or not isinstance(controls[-1], SnapshotFooterRecord)
    ):
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"the metadata snapshot {path} does not begin with a header and end with a footer: it is incomplete. "
            f"{_REMEDY}",
        )
    return (
        decode_record(record.value or b"")
        for batch in batches
        if not batch.header.is_control
        for record in batch.records
    )


def _damaged_at(data: bytes) -> int:
    """The position of the first batch that is torn or has a wrong checksum."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = read_header(data, position)
        is_complete = header.magic == MAGIC and HEADER_SIZE <= header.size <= len(data) - position
        if not is_complete or not crc_matches(data, position, header):
            break
        position += header.size
    return position
