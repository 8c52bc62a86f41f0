"""A checkpoint of a Delta log: all that one has to know of the versions before, in one Parquet file."""

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
# A column for each kind of action, as Delta's protocol has them. There are no tombstones to keep: the archive deletes
# superseded files by itself.
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
    """A row for each action."""
    content = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(actions), schema=SCHEMA), content)
    return bytes(content.getvalue())
