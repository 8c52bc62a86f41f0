"""meta.properties: the cluster and the node to which a data directory belongs (KIP-631, KIP-858)."""

import re
import uuid
from dataclasses import dataclass

from ottla.env.disk import Disk
from ottla.model.ids import uuid_from_string, uuid_to_string

_META_PROPERTIES = "meta.properties"
_VERSION = "1"
_LINE = re.compile(r"\s*(?P<key>[^=:\s]+)\s*[=:\s]\s*(?P<value>.*?)\s*")


class UnusableDirectoryError(Exception):
    """This broker must not use a data directory. The message names it and says what to do."""


class OfflineDirectoryError(Exception):
    """A directory is offline without which the broker cannot run. The message says which one, and why."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: int
    directory_id: uuid.UUID

    def encode(self) -> bytes:
        lines = [
            f"cluster.id={self.cluster_id}",
            f"directory.id={uuid_to_string(self.directory_id)}",
            f"node.id={self.node_id}",
            f"version={_VERSION}",
        ]
        return "\n".join(["#", *lines, ""]).encode()


def read_meta_properties(disk: Disk, directory: str) -> MetaProperties | None:
    """Returns None for a new directory."""
    path = f"{directory}/{_META_PROPERTIES}"
    try:
        properties = _parse(disk.read_bytes(path).decode())
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UnusableDirectoryError(
            f"{path} is damaged at byte {error.start}: it is not text. Restore the file or use another directory"
        ) from None
    if properties.get("version") != _VERSION:
        raise UnusableDirectoryError(
            f"{path} has version {properties.get('version')!r}, but only version {_VERSION} is supported. "
            "Migrate a directory of a ZooKeeper-based broker to KRaft with Apache Kafka first"
        )
    try:
        return MetaProperties(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=uuid_from_string(properties["directory.id"]),
        )
    except (KeyError, ValueError) as error:
        raise UnusableDirectoryError(
            f"{path} must have cluster.id, node.id and directory.id: {error}. Restore the file or use another directory"
        ) from None


def write_meta_properties(disk: Disk, directory: str, meta: MetaProperties) -> None:
    disk.write_atomically(f"{directory}/{_META_PROPERTIES}", meta.encode())


def check_identity(
    path: str, meta: MetaProperties, node_id: int, cluster_id: str | None, source: str
) -> None:
    """Raises UnusableDirectoryError if the directory belongs to another node or cluster.

    `source` says where `cluster_id` comes from.
    """
    if meta.node_id != node_id:
        raise UnusableDirectoryError(
            f"the data directory {path} belongs to node {meta.node_id}, and this is node {node_id}: start with "
            f"node.id={meta.node_id} or choose another directory"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise UnusableDirectoryError(
            f"the data directory {path} belongs to cluster {meta.cluster_id}, but {source} says {cluster_id}: "
            "choose another directory, or set the right cluster id"
        )


def missing_identity_error(path: str) -> UnusableDirectoryError:
    return UnusableDirectoryError(
        f"{path}/{_META_PROPERTIES} is missing, but the directory has data, whose cluster is therefore unknown. "
        "Restore the file from a backup or choose another directory"
    )


def _parse(text: str) -> dict[str, str]:
    """Parses the part of Java's properties format that this file uses."""
    properties = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and not line.lstrip().startswith(("#", "!")):
            properties[match["key"]] = match["value"].replace("\\", "")
    return properties
