"""The first records of a cluster, which set the levels of its features.

Kafka's tools write them to `bootstrap.checkpoint` when they format a directory. If that file is missing, the default
levels of this release are used, and written to it.
"""

from collections.abc import Mapping

from ottla.broker.quorum.quorum_state import write_quorum_state
from ottla.broker.quorum.snapshots import (
    BOOTSTRAP_CHECKPOINT,
    SnapshotId,
    decode_snapshot,
    encode_snapshot,
)
from ottla.core.controller.configs import MIN_INSYNC_REPLICAS
from ottla.core.controller.image import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
    ResourceType,
)
from ottla.core.raft.ready import HardState
from ottla.core.raft.voter_set import RECONFIGURATION_FROM, KRaftVersion, VoterSet
from ottla.env.disk import Disk
from ottla.model.ids import METADATA_TOPIC
from ottla.protocol.metadata_records.codec import METADATA_VERSION_MAX
from ottla.protocol.metadata_records.records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from ottla.storage.directory_creation import create_directory

DEFAULT_FEATURES: Mapping[str, int] = {
    METADATA_VERSION: METADATA_VERSION_MAX,
    GROUP_VERSION: 1,
    TRANSACTION_VERSION: 2,
    ELR_VERSION: 1,
}


def bootstrap_records(
    disk: Disk, log_dir: str, now_ms: int, min_insync_replicas: int = 1
) -> list[MetadataRecord]:
    """The records that a new leader appends to an empty log, as one metadata transaction (KIP-868).

    Eligible leader replicas (KIP-966) depend on min.insync.replicas, so all brokers get the value of this node.
    """
    path = f"{log_dir}/{BOOTSTRAP_CHECKPOINT}"
    if not disk.exists(path):
        write_bootstrap_checkpoint(disk, log_dir, DEFAULT_FEATURES, now_ms)
    records = list(decode_snapshot(disk.read_bytes(path), path))
    if any(isinstance(record, FeatureLevelRecord) and record.name == ELR_VERSION for record in records):
        records.append(
            ConfigRecord(
                resource_type=ResourceType.BROKER,
                resource_name="",
                name=MIN_INSYNC_REPLICAS,
                value=str(min_insync_replicas),
            )
        )
    return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]


def write_bootstrap_snapshot(disk: Disk, log_dir: str, voters: VoterSet, now_ms: int) -> None:
    """The first voters of a cluster, in the snapshot 0-0 of its empty metadata log (KIP-853)."""
    directory = f"{log_dir}/{METADATA_TOPIC}-0"
    create_directory(disk, directory)
    data = encode_snapshot(
        (),
        epoch=0,
        last_contained_log_timestamp=0,
        now_ms=now_ms,
        membership=(KRaftVersion(RECONFIGURATION_FROM), voters),
    )
    disk.write_atomically(f"{directory}/{SnapshotId(0, 0).file_name}", data)


def write_empty_quorum_state(disk: Disk, log_dir: str) -> None:
    """A quorum-state with voters in the log, which is empty yet: the node never becomes a quorum of its own."""
    directory = f"{log_dir}/{METADATA_TOPIC}-0"
    create_directory(disk, directory)
    write_quorum_state(disk, directory, HardState(), None)


def write_bootstrap_checkpoint(disk: Disk, log_dir: str, features: Mapping[str, int], now_ms: int) -> None:
    """As Kafka's formatter writes it: metadata.version is the first record, and level 0 means no record."""
    # KRAFT_VERSION is no feature of the metadata: the quorum's own records have it.
    features = {name: level for name, level in features.items() if name != KRAFT_VERSION}
    names = sorted(features, key=lambda name: (name != METADATA_VERSION, name))
    records = [
        FeatureLevelRecord(name=name, feature_level=features[name]) for name in names if features[name] > 0
    ]
    data = encode_snapshot(records, epoch=0, last_contained_log_timestamp=0, now_ms=now_ms)
    disk.write_atomically(f"{log_dir}/{BOOTSTRAP_CHECKPOINT}", data)
