"""meta.properties: to which cluster and node a data directory belongs (KIP-631, KIP-858)."""

import re
import uuid
from dataclasses import dataclass

from ottla.env.disk import Disk
from ottla.model.ids import uuid_from_string, uuid_to_string

META_PROPERTIES = "meta.properties"
_VERSION = "1"
_LINE = re.compile(r"\s*(?P<key>[^=:\s]+)\s*[=:\s]\s*(?P<value>.*?)\s*")


class RefusedDirectoryError(Exception):
    """A data directory that this broker must not use. The message names it and says what to do."""


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
    """None where the directory has none yet."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        properties = _parse(disk.read_bytes(path).decode())
    except FileNotFoundError:
        return None
    if properties.get("version") != _VERSION:
        raise RefusedDirectoryError(
            f"{path} has version {properties.get('version')!r}; version {_VERSION} is known. "
            "A directory of a broker with ZooKeeper must be migrated to KRaft with Apache Kafka first"
        )
    try:
        return MetaProperties(
            cluster_id=properties["cluster.id"],
            node_id=int(properties["node.id"]),
            directory_id=uuid_from_string(properties["directory.id"]),
        )
    except (KeyError, ValueError) as error:
        raise RefusedDirectoryError(
            f"{path} must have cluster.id, node.id and directory.id: {error}. Restore the file or use another directory"
        ) from None


def _parse(text: str) -> dict[str, str]:
    """Java's properties, as far as this file needs them."""
    properties = {}
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and not line.lstrip().startswith(("#", "!")):
            properties[match["key"]] = match["value"].replace("\\", "")
    return properties
