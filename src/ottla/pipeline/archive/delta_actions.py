"""What a Delta log says about an archived topic: actions, as Delta's protocol has them.

The manifests decide; the log says the same in Delta's words. A version follows one manifest, whose number it keeps as
the version of an application transaction, so that whoever goes on knows where.
"""

import json
import uuid
from collections.abc import Iterable
from typing import Any

from ottla.pipeline.archive.manifest import Archived, Batch, Claim, DataFile, Manifest, Merge

Action = dict[str, Any]

APPLICATION = "ottla-archive"
# Version 1 of readers and 2 of writers: what every reader of Delta tables knows.
PROTOCOL: Action = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
PARTITION_COLUMNS = ["date", "hour"]
COLUMNS: dict[str, Any] = {
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "integer",
    "leaderEpoch": "integer",
    "key": "binary",
    "value": "binary",
    "headers": [{"key": "string", "value": "binary"}],
    "date": "date",
    "hour": "integer",
}
# Of tables, from which their ids are made
NAMESPACE = uuid.UUID("6d1f3c1e-6f1b-5f0e-9f5a-0d7f1f5f6a11")


def first_version(archived: Archived, topic: str, now_ms: int) -> list[Action]:
    """All that is archived of the topic by now, as a new table."""
    return [commit_info("CREATE TABLE", now_ms), *table_state(archived, topic, now_ms)]


def table_state(archived: Archived, topic: str, now_ms: int) -> list[Action]:
    """What a checkpoint holds: everything that one has to know of the versions before."""
    added = [add(file, now_ms, is_new=True) for file in archived.files_of(topic)]
    return [PROTOCOL, metadata(archived, topic), transaction(archived.number), *added]


def next_version(number: int, manifest: Manifest, topic: str, now_ms: int) -> list[Action]:
    """What a manifest changes in the topic's table; nothing where it does not touch the topic."""
    if isinstance(manifest, Claim):
        return []
    files = [file for file in manifest.files if file.topic == topic]
    if not files:
        return []
    known = [transaction(number)]
    if isinstance(manifest, Batch):
        return [commit_info("WRITE", now_ms), *known, *(add(file, now_ms, is_new=True) for file in files)]
    removed = [remove(path, manifest) for path in manifest.supersedes if path.startswith(f"{topic}/")]
    # The same records in other files: whoever follows the table as a stream must not see them again.
    return [
        commit_info("OPTIMIZE", now_ms),
        *known,
        *removed,
        *(add(file, now_ms, is_new=False) for file in files),
    ]


def commit_info(operation: str, now_ms: int) -> Action:
    return {"commitInfo": {"timestamp": now_ms, "operation": operation, "operationParameters": {}}}


def transaction(number: int) -> Action:
    return {"txn": {"appId": APPLICATION, "version": number}}


def metadata(archived: Archived, topic: str) -> Action:
    """The same for all versions, and other than that of a table of another archive: by the archive's first run."""
    return {
        "metaData": {
            "id": str(uuid.uuid5(NAMESPACE, f"{archived.origin}/{topic}")),
            "name": topic,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(data_type(COLUMNS)),
            "partitionColumns": PARTITION_COLUMNS,
            "configuration": {},
        }
    }


def data_type(kind: Any) -> Any:
    """Spark's way to write a type: a dict is a struct, a list an array of its only item."""
    if isinstance(kind, dict):
        fields = [
            {"name": name, "type": data_type(one), "nullable": True, "metadata": {}}
            for name, one in kind.items()
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(kind, list):
        return {"type": "array", "elementType": data_type(kind[0]), "containsNull": True}
    return kind


def add(file: DataFile, now_ms: int, *, is_new: bool) -> Action:
    return {
        "add": {
            "path": path_in_table(file.path),
            "partitionValues": {"date": file.hour.date, "hour": str(file.hour.hour)},
            "size": file.bytes,
            "modificationTime": now_ms,
            "dataChange": is_new,
            "stats": statistics(file),
        }
    }


def remove(path: str, merge: Merge) -> Action:
    return {
        "remove": {
            "path": path_in_table(path),
            "deletionTimestamp": merge.merged_at_ms,
            "dataChange": False,
        }
    }


def path_in_table(path: str) -> str:
    """Of an archive's file: below its topic. It has no character that a URL would write in another way."""
    return path.partition("/")[2]


def statistics(file: DataFile) -> str:
    """By which a reader passes over files that cannot hold the offsets it wants."""
    slices = file.slices.values()
    low = {"partition": min(file.slices), "offset": min(one.first for one in slices)}
    high = {"partition": max(file.slices), "offset": max(one.last for one in slices)}
    none = {"partition": 0, "offset": 0}
    return json.dumps({"numRecords": file.records, "minValues": low, "maxValues": high, "nullCount": none})


def to_lines(actions: Iterable[Action]) -> str:
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def manifest_number(text: str) -> int | None:
    """The number of the manifest that a version follows; None where somebody else wrote the version."""
    for line in text.splitlines():
        said = json.loads(line).get("txn", {})
        if said.get("appId") == APPLICATION:
            return int(said["version"])
    return None


def apply_version(paths: set[str], text: str) -> set[str]:
    """The files of the version whose text it is, from those of the version before."""
    actions = [json.loads(line) for line in text.splitlines()]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    return paths - removed | {action["add"]["path"] for action in actions if "add" in action}
