"""The actions of Delta's protocol for an archived topic.

The manifests decide, and the log repeats them. Each version is made from one manifest, and keeps its number as the
version of an application transaction, so that the next writer knows where to continue.
"""

import json
import uuid
from collections.abc import Iterable
from typing import Any

from ottla.pipeline.archive.manifest import Archived, Batch, Claim, DataFile, Manifest, Merge

Action = dict[str, Any]

_APPLICATION = "ottla-archive"
# Reader version 1, which every reader of Delta tables supports. A writer must reject a table with a writer feature that
# it does not know, as nobody but the archive knows this one: another program could compact the table, and delete files
# that the manifests name. The other two are those of writer version 2, which an older Ottla wrote.
_PROTOCOL: Action = {
    "protocol": {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["appendOnly", "invariants", "ottlaArchive"],
    }
}
_PARTITION_COLUMNS = ["date", "hour"]
_COLUMNS: dict[str, Any] = {
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
# for the ids of tables
_NAMESPACE = uuid.UUID("6d1f3c1e-6f1b-5f0e-9f5a-0d7f1f5f6a11")


def first_version(archived: Archived, topic: str, now_ms: int) -> list[Action]:
    """A new table with everything that is archived of the topic."""
    return [_commit_info("CREATE TABLE", now_ms), *table_state(archived, topic, now_ms)]


def table_state(archived: Archived, topic: str, now_ms: int) -> list[Action]:
    """The content of a checkpoint: the sum of all versions so far."""
    added = [_add(file, now_ms, is_new=True) for file in archived.files_of(topic)]
    return [_PROTOCOL, _metadata(archived, topic), _application_transaction(archived.number), *added]


def next_version(number: int, manifest: Manifest, topic: str, now_ms: int) -> list[Action]:
    """The changes of a manifest to the topic's table; empty if it has no files of the topic."""
    if isinstance(manifest, Claim):
        return []
    files = [file for file in manifest.files if file.topic == topic]
    if not files:
        return []
    known = [_application_transaction(number)]
    if isinstance(manifest, Batch):
        return [_commit_info("WRITE", now_ms), *known, *(_add(file, now_ms, is_new=True) for file in files)]
    removed = [_remove(path, manifest) for path in manifest.supersedes if path.startswith(f"{topic}/")]
    # The same records in other files: a reader that follows the table as a stream must not see them again.
    return [
        _commit_info("OPTIMIZE", now_ms),
        *known,
        *removed,
        *(_add(file, now_ms, is_new=False) for file in files),
    ]


def difference(listed: set[str], archived: Archived, topic: str, now_ms: int) -> list[Action]:
    """What makes a table with the listed files one with everything that is archived of the topic; empty if it is."""
    files = {path_in_table(file.path): file for file in archived.files_of(topic)}
    added = [file for path, file in files.items() if path not in listed]
    removed = sorted(listed - files.keys())
    if not added and not removed:
        return []
    return [
        _commit_info("WRITE", now_ms),
        _application_transaction(archived.number),
        # A change of data even after a merge: the table may have lacked some of the records.
        *({"remove": {"path": path, "deletionTimestamp": now_ms, "dataChange": True}} for path in removed),
        *(_add(file, now_ms, is_new=True) for file in added),
    ]


def reserved(actions: Iterable[Action]) -> list[Action]:
    """The actions of a version that also reserves the table for the archive, if an older Ottla created it."""
    information, *others = actions
    return [information, _PROTOCOL, *others]


def _commit_info(operation: str, now_ms: int) -> Action:
    return {"commitInfo": {"timestamp": now_ms, "operation": operation, "operationParameters": {}}}


def _application_transaction(number: int) -> Action:
    return {"txn": {"appId": _APPLICATION, "version": number}}


def _metadata(archived: Archived, topic: str) -> Action:
    """The table's id is made from the archive's first run: it never changes, and differs between archives."""
    return {
        "metaData": {
            "id": str(uuid.uuid5(_NAMESPACE, f"{archived.origin}/{topic}")),
            "name": topic,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_data_type(_COLUMNS)),
            "partitionColumns": _PARTITION_COLUMNS,
            "configuration": {},
        }
    }


def _data_type(kind: Any) -> Any:
    """A type in Spark's JSON format. A dict is a struct, a list an array of its only item."""
    if isinstance(kind, dict):
        fields = [
            {"name": name, "type": _data_type(one), "nullable": True, "metadata": {}}
            for name, one in kind.items()
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(kind, list):
        return {"type": "array", "elementType": _data_type(kind[0]), "containsNull": True}
    return kind


def _add(file: DataFile, now_ms: int, *, is_new: bool) -> Action:
    return {
        "add": {
            "path": path_in_table(file.path),
            "partitionValues": {"date": file.hour.date, "hour": str(file.hour.hour)},
            "size": file.bytes,
            "modificationTime": now_ms,
            "dataChange": is_new,
            "stats": _statistics(file),
        }
    }


def _remove(path: str, merge: Merge) -> Action:
    return {
        "remove": {
            "path": path_in_table(path),
            "deletionTimestamp": merge.merged_at_ms,
            "dataChange": False,
        }
    }


def path_in_table(path: str) -> str:
    """An archive's file as a path below its topic. It has no characters that a URL would escape."""
    return path.partition("/")[2]


def _statistics(file: DataFile) -> str:
    """With these a reader skips files that cannot contain the offsets it wants."""
    slices = file.slices.values()
    low = {"partition": min(file.slices), "offset": min(one.first for one in slices)}
    high = {"partition": max(file.slices), "offset": max(one.last for one in slices)}
    none = {"partition": 0, "offset": 0}
    return json.dumps({"numRecords": file.records, "minValues": low, "maxValues": high, "nullCount": none})


def to_lines(actions: Iterable[Action]) -> str:
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)


def manifest_number(text: str) -> int | None:
    """The number of the manifest from which a version was made; None if another program wrote the version."""
    for line in text.splitlines():
        transaction = json.loads(line).get("txn", {})
        if transaction.get("appId") == _APPLICATION:
            return int(transaction["version"])
    return None


def apply_version(paths: set[str], text: str) -> set[str]:
    """The table's files after a version, from those before it and the version's text."""
    actions = [json.loads(line) for line in text.splitlines()]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    return paths - removed | {action["add"]["path"] for action in actions if "add" in action}
