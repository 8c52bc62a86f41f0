"""The data directories of this node when it starts, and when one of them fails while it runs."""

from collections.abc import Callable

from ottla.broker.partition_host import PartitionHost
from ottla.broker.quorum.metadata_log import METADATA_PARTITION
from ottla.broker.random_uuid import random_uuid
from ottla.env import Env
from ottla.model.config import BrokerConfig
from ottla.model.ids import uuid_to_string
from ottla.storage.directory_creation import create_directory
from ottla.storage.log_dirs import LogDirs
from ottla.storage.meta_properties import (
    MetaProperties,
    OfflineDirectoryError,
    UnusableDirectoryError,
    check_identity,
    missing_identity_error,
    read_meta_properties,
    write_meta_properties,
)


def identify_directories(
    env: Env, config: BrokerConfig, log_dirs: LogDirs, *, has_other_nodes: bool = False
) -> str:
    """Checks that all directories belong to this node of one cluster, and marks new ones. Returns the cluster id.

    A single node may begin a cluster with a random id. With other nodes the id must be known before, as all have the
    same. Raises UnusableDirectoryError.
    """
    if has_other_nodes and log_dirs.known_cluster_id is None:
        raise UnusableDirectoryError(
            f"{log_dirs.paths[0]} is not formatted. All nodes of a cluster have the same cluster id: print a new one "
            "with `ottla format --random-cluster-id`, and run `ottla format --cluster-id ID` with the config of each "
            "node"
        )
    cluster_id = log_dirs.identify(
        config.node_id,
        lambda: random_uuid(env),
        log_dirs.known_cluster_id or uuid_to_string(random_uuid(env)),
    )
    if config.metadata_log_dir.rstrip("/") not in {*log_dirs.paths, *log_dirs.offline}:
        _identify_metadata_dir(env, config, log_dirs, cluster_id)
    return cluster_id


def check_metadata_dir_is_online(config: BrokerConfig, log_dirs: LogDirs) -> None:
    """Raises UnusableDirectoryError: nothing may be read from a failed directory, or written to it."""
    metadata_dir = config.metadata_log_dir.rstrip("/")
    if metadata_dir in log_dirs.offline:
        raise UnusableDirectoryError(
            f"the metadata log lies in {metadata_dir}, which is offline ({log_dirs.offline[metadata_dir]}): fix the "
            "disk, or restore the metadata log to another directory and set metadata.log.dir"
        )


def _identify_metadata_dir(env: Env, config: BrokerConfig, log_dirs: LogDirs, cluster_id: str) -> None:
    """A metadata.log.dir that is no data directory belongs to one node of one cluster too."""
    disk, node_id, path = env.disk, config.node_id, config.metadata_log_dir
    meta = read_meta_properties(disk, path)
    if meta is not None:
        check_identity(path, meta, node_id, cluster_id, log_dirs.paths[0])
    elif disk.exists(f"{path}/{METADATA_PARTITION}"):
        raise missing_identity_error(path)
    else:
        create_directory(disk, path)
        write_meta_properties(disk, path, MetaProperties(cluster_id, node_id, random_uuid(env)))


def directory_went_offline(
    config: BrokerConfig,
    log_dirs: LogDirs,
    partitions: PartitionHost,
    fail: Callable[[Exception], None],
    path: str,
) -> None:
    """Closes the partitions in `path`.

    As in Kafka, the broker fails if no data directory is left, or if the metadata log was in this one.
    """
    partitions.fail_offline()
    if not log_dirs.paths:
        reasons = "; ".join(f"{offline}: {reason}" for offline, reason in log_dirs.offline.items())
        fail(OfflineDirectoryError(f"every data directory is offline ({reasons})"))
    elif path == config.metadata_log_dir.rstrip("/"):
        fail(
            OfflineDirectoryError(
                f"the data directory of the metadata log is offline ({path}: {log_dirs.offline[path]})"
            )
        )
