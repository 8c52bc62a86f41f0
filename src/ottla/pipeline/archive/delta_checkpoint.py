"""A checkpoint of a Delta log: the sum of all versions so far, as one Parquet file."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline.archive.delta_actions import Action

TEXT, NUMBER, TEXTS = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
ADD = {
    "path": TEXT,
    "partitionValues": TEXTS,
    "size": NUMBER,
    "modificationTime": NUMBER,
    "dataChange": pa.bool_(),
    "stats": TEXT,
}
METADATA = {
    "id": TEXT,
    "name": TEXT,
    "format": pa.struct({"provider": TEXT, "options": TEXTS}),
    "schemaString": TEXT,
    "partitionColumns": pa.list_(TEXT),
    "configuration": TEXTS,
}
# A column for each action of Delta's protocol. It needs no tombstones: the archive deletes superseded files itself.
SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": TEXT, "version": NUMBER}),
        "add": pa.struct(ADD),
        "remove": pa.struct({"path": TEXT, "deletionTimestamp": NUMBER, "dataChange": pa.bool_()}),
        "metaData": pa.struct(METADATA),
        "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
    }
)


def to_parquet(actions: Sequence[Action]) -> bytes:
    """The actions as a Parquet file, one row each."""
    content = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(actions), schema=SCHEMA), content)
    return bytes(content.getvalue())
