"""Formats the directories of a node, as `kafka-storage format` does (KIP-631, KIP-858, KIP-1022).

A formatted directory has a meta.properties with the ids of the cluster, the node and the directory, and a
bootstrap.checkpoint with the first feature levels of the cluster. All nodes of a cluster must be formatted with the
same cluster id before they start. A single node formats itself.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.broker.quorum.bootstrap import (
    DEFAULT_FEATURES,
    write_bootstrap_checkpoint,
    write_bootstrap_snapshot,
    write_empty_quorum_state,
)
from ottla.broker.quorum.voters import controller_listener_name
from ottla.broker.random_uuid import random_uuid
from ottla.core.controller.image import (
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    TRANSACTION_VERSION,
)
from ottla.core.controller.settings import SUPPORTED_FEATURES
from ottla.core.raft.voter_set import Voter, VoterEndpoint, VoterSet
from ottla.env import Env
from ottla.env.disk import Disk
from ottla.model.config import BrokerConfig
from ottla.model.ids import uuid_from_string, uuid_to_string
from ottla.storage.directory_creation import create_directory
from ottla.storage.file_names import parse_partition_dir
from ottla.storage.meta_properties import (
    MetaProperties,
    UnusableDirectoryError,
    check_identity,
    read_meta_properties,
    write_meta_properties,
)

# The metadata.version from which on a new cluster has the default level of a feature; below it has level 0.
_PORT_MAX = 65_535
_DEFAULT_SINCE = {GROUP_VERSION: 22, TRANSACTION_VERSION: 24, ELR_VERSION: 26}


class InitialControllers(NamedTuple):
    """The first voters of a cluster (KIP-853). `is_standalone`: the node that is formatted, and no other.

    Without voters, the node waits until the cluster adds it.
    """

    voters: tuple[Voter, ...] = ()
    is_standalone: bool = False

    def own_voter(self, config: BrokerConfig) -> Voter | None:
        """This node; None if it is not one of them."""
        if self.is_standalone:
            return Voter(config.node_id)
        return next((voter for voter in self.voters if voter.id == config.node_id), None)

    def voters_with(self, config: BrokerConfig, directory_id: UUID) -> VoterSet:
        """All voters with the endpoints of the controller listener, and the versions of this release."""
        listener = controller_listener_name(config)
        versions = SUPPORTED_FEATURES[KRAFT_VERSION]
        if not self.is_standalone:
            return VoterSet.of(
                voter._replace(
                    endpoints=tuple(endpoint._replace(listener=listener) for endpoint in voter.endpoints),
                    kraft_versions=versions,
                )
                for voter in self.voters
            )
        endpoint = next(each for each in config.controller_listeners if each.name.upper() == listener)
        advertised = {each.name.upper(): each for each in config.advertised_listeners}.get(listener, endpoint)
        found = VoterEndpoint(listener, advertised.host or "localhost", advertised.port)
        return VoterSet.of([Voter(config.node_id, directory_id, (found,), versions)])


_INITIAL_CONTROLLER = re.compile(r"(\d+)@(?:\[([^]]+)\]|([^:@\[\]]+)):(\d+):([A-Za-z0-9_-]{22})")


def parse_initial_controllers(text: str) -> InitialControllers:
    """Parses `ID@HOST:PORT:DIRECTORY_ID,...`. Raises ValueError."""
    voters: dict[int, Voter] = {}
    for item in text.split(","):
        match = _INITIAL_CONTROLLER.fullmatch(item.strip())
        if match is None or int(match[4]) > _PORT_MAX:
            raise ValueError(f"{item!r} is not a controller. Set ID@HOST:PORT:DIRECTORY_ID,...")
        directory_id = uuid_from_string(match[5])
        node_id, endpoint = int(match[1]), VoterEndpoint("", match[2] or match[3], int(match[4]))
        if node_id in voters or any(voter.directory_id == directory_id for voter in voters.values()):
            raise ValueError(f"{item!r} has the node id or the directory id of another controller")
        voters[node_id] = Voter(node_id, directory_id, (endpoint,))
    return InitialControllers(tuple(voters.values()))


class FormattedDirectory(NamedTuple):
    """`is_new`: it was formatted now, not before."""

    path: str
    is_metadata_directory: bool
    meta: MetaProperties
    is_new: bool


def new_cluster_id(env: Env) -> str:
    """Never begins with a dash, like Kafka's: it is given to commands as an argument."""
    while True:
        cluster_id = uuid_to_string(random_uuid(env))
        if not cluster_id.startswith("-"):
            return cluster_id


def needs_cluster_id(config: BrokerConfig) -> bool:
    """Whether the node is one of several, which must all have the same cluster id."""
    has_both_roles = set(config.get_list("process.roles")) == {"broker", "controller"}
    return (
        len(config.get_list("controller.quorum.voters")) > 1
        or not has_both_roles
        or len(config.get_list("controller.quorum.bootstrap.servers")) > 1
    )


def feature_levels(chosen: Mapping[str, int]) -> dict[str, int]:
    """The levels of a new cluster: the chosen ones, and defaults that suit the metadata.version.

    Raises ValueError for a feature or a level that this release does not support.
    """
    for name, level in chosen.items():
        if name not in SUPPORTED_FEATURES:
            known = ", ".join(sorted(SUPPORTED_FEATURES))
            raise ValueError(f"{name} is not a feature that this release supports. Set one of {known}")
        low, high = SUPPORTED_FEATURES[name]
        if not low <= level <= high:
            raise ValueError(f"{name}={level} is not supported. Set a level from {low} to {high}")
    metadata_version = chosen.get(METADATA_VERSION, DEFAULT_FEATURES[METADATA_VERSION])
    defaults = {
        name: level
        for name, level in DEFAULT_FEATURES.items()
        if metadata_version >= _DEFAULT_SINCE.get(name, 0)
    }
    return {**defaults, **chosen}


def format_directories(
    env: Env,
    config: BrokerConfig,
    *,
    cluster_id: str | None = None,
    features: Mapping[str, int] = DEFAULT_FEATURES,
    ignore_formatted: bool = False,
    initial: InitialControllers | None = None,
) -> list[FormattedDirectory]:
    """Formats all directories of a node, or none if one of them belongs to another cluster or node.

    Without `cluster_id`, the id of the directories that are formatted is used, or else a new one if this is the only
    node. Raises UnusableDirectoryError, and OSError if a disk fails.
    """
    paths = directories_of(config)
    found = {path: read_meta_properties(env.disk, path) for path in paths}
    known_id = _check_formatted(config.node_id, found, cluster_id)
    formatted = [path for path, meta in found.items() if meta is not None]
    if formatted and not ignore_formatted:
        raise UnusableDirectoryError(
            f"the directory {formatted[0]} is formatted already. Use --ignore-formatted to format only the others"
        )
    if known_id is None and needs_cluster_id(config):
        raise UnusableDirectoryError(
            "the cluster has several nodes, which must all have the same cluster id. Get one with `ottla format "
            "--random-cluster-id`, and format every node with --cluster-id"
        )
    for path in paths:
        if known_id is None and _has_data(env.disk, path):
            raise UnusableDirectoryError(
                f"the directory {path} has data, but no meta.properties, so its cluster is unknown. Set its cluster id "
                "with --cluster-id, or choose another directory"
            )
    known_id = known_id or new_cluster_id(env)
    own = None if initial is None else initial.own_voter(config)
    taken = {meta.directory_id for meta in found.values() if meta is not None}
    if own is not None and own.directory_id is not None:
        taken.add(own.directory_id)
    results = []
    for path, meta in found.items():
        is_new = meta is None
        if meta is None:
            is_voter = own is not None and path == _normal(config.metadata_log_dir)
            directory_id = own.directory_id if own is not None and is_voter else None
            meta = MetaProperties(known_id, config.node_id, directory_id or _new_directory_id(env, taken))
            if initial is not None and is_voter:
                voters = initial.voters_with(config, meta.directory_id)
                write_bootstrap_snapshot(env.disk, path, voters, env.clock.now_ms())
            elif initial is not None and path == _normal(config.metadata_log_dir):
                write_empty_quorum_state(env.disk, path)
            _format(env, path, meta, features)
        results.append(
            FormattedDirectory(path, path == _normal(config.metadata_log_dir), meta, is_new=is_new)
        )
    return results


def directories_of(config: BrokerConfig) -> list[str]:
    """The data directories and that of the metadata log, sorted, each once."""
    return sorted({_normal(path) for path in (*config.log_dirs, config.metadata_log_dir)})


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"


def _check_formatted(
    node_id: int, found: Mapping[str, MetaProperties | None], cluster_id: str | None
) -> str | None:
    """Returns the cluster id: the given one, or that of the formatted directories."""
    source = "--cluster-id"
    for path, meta in found.items():
        if meta is not None:
            check_identity(path, meta, node_id, cluster_id, source)
            if cluster_id is None:
                cluster_id, source = meta.cluster_id, path
    return cluster_id


def _has_data(disk: Disk, path: str) -> bool:
    return disk.exists(path) and any(parse_partition_dir(name) is not None for name in disk.list_dir(path))


def _new_directory_id(env: Env, taken: set[UUID]) -> UUID:
    while (directory_id := random_uuid(env)) in taken:
        pass
    taken.add(directory_id)
    return directory_id


def _format(env: Env, path: str, meta: MetaProperties, features: Mapping[str, int]) -> None:
    """meta.properties is written last: a directory that has it is formatted completely."""
    create_directory(env.disk, path)
    write_bootstrap_checkpoint(env.disk, path, features, env.clock.now_ms())
    write_meta_properties(env.disk, path, meta)
