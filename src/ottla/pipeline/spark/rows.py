"""The columns of a topic's records, as in Spark's Kafka source: the schemas for Spark and for Arrow."""

from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS_WITH_HEADERS = StructType([*_COLUMNS.fields, StructField("headers", HEADERS)])

HEADERS_TYPE = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_ARROW = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)
ARROW_WITH_HEADERS = _ARROW.append(pa.field("headers", HEADERS_TYPE))


class Extras(NamedTuple):
    """Optional columns. They come after the others, in this order."""

    headers: bool = False
    # Spark's source does not have it. It is that of the record's batch; null if the broker does not send it.
    leader_epoch: bool = False


def columns(extras: Extras) -> StructType:
    fields = [*(COLUMNS_WITH_HEADERS if extras.headers else _COLUMNS).fields]
    if extras.leader_epoch:
        fields.append(StructField("leaderEpoch", IntegerType()))
    return StructType(fields)


def arrow_schema(extras: Extras) -> pa.Schema:
    schema = ARROW_WITH_HEADERS if extras.headers else _ARROW
    return schema.append(pa.field("leaderEpoch", pa.int32())) if extras.leader_epoch else schema
