"""The first records of a cluster, which set the levels of its features.

Kafka's tools write them to `bootstrap.checkpoint` when they format a directory. If that file is missing, the default
levels of this release are used, and written to it.
"""

from collections.abc import Mapping

from ottla.broker.quorum.snapshots import BOOTSTRAP_CHECKPOINT, decode_snapshot, encode_snapshot
from ottla.core.controller.image import GROUP_VERSION, METADATA_VERSION, TRANSACTION_VERSION
from ottla.env.disk import Disk
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX
from ottla.protocol.metadata_records.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)

DEFAULT_FEATURES: Mapping[str, int] = {
    METADATA_VERSION: METADATA_VERSION_MAX,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
}


def bootstrap_records(disk: Disk, log_dir: str, now_ms: int) -> list[MetadataRecord]:
    """The records that a new leader appends to an empty log, as one metadata transaction (KIP-868)."""
    path = f"{log_dir}/{BOOTSTRAP_CHECKPOINT}"
    try:
        records = list(decode_snapshot(disk.read_bytes(path), path))
    except FileNotFoundError:
        records = [
            FeatureLevelRecord(name=name, feature_level=level) for name, level in DEFAULT_FEATURES.items()
        ]
        data = encode_snapshot(records, epoch=0, last_contained_log_timestamp=0, now_ms=now_ms)
        disk.write_atomically(path, data)
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]
