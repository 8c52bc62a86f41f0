"""A checkpoint of a Delta log: the sum of all versions so far, as one Parquet file."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.archive.delta_actions import Action

_TEXT, _NUMBER, _TEXTS = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
_ADD = {
    "path": _TEXT,
    "partitionValues": _TEXTS,
    "size": _NUMBER,
    "modificationTime": _NUMBER,
    "dataChange": pa.bool_(),
    "stats": _TEXT,
}
_METADATA = {
    "id": _TEXT,
    "name": _TEXT,
    "format": pa.struct({"provider": _TEXT, "options": _TEXTS}),
    "schemaString": _TEXT,
    "partitionColumns": pa.list_(_TEXT),
    "configuration": _TEXTS,
}
# A column for each action of Delta's protocol. It needs no tombstones: the archive deletes superseded files itself.
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": _TEXT, "version": _NUMBER}),
        "add": pa.struct(_ADD),
        "remove": pa.struct({"path": _TEXT, "deletionTimestamp": _NUMBER, "dataChange": pa.bool_()}),
        "metaData": pa.struct(_METADATA),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "writerFeatures": pa.list_(_TEXT),
            }
        ),
    }
)


def to_parquet(actions: Sequence[Action]) -> bytes:
    """The actions as a Parquet file, one row each."""
    content = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(actions), schema=_SCHEMA), content)
    return bytes(content.getvalue())


def paths_in(checkpoint: bytes) -> set[str]:
    """The table's files according to a checkpoint."""
    rows = pq.ParquetFile(pa.BufferReader(checkpoint)).read(columns=["add.path"]).column("add").to_pylist()
    return {row["path"] for row in rows if row is not None and row["path"] is not None}
