"""Converts Arrow rows to the arguments of `Producer.produce`, column by column, which leaves little work per record."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.errors import PipelineError

# lets the producer's partitioner choose
_ANY_PARTITION = -1
# takes the time of the producer
_NOW = 0

_Headers = list[tuple[str, bytes | None]]


def produce_arguments(
    rows: pa.RecordBatch, topic: str | None, *, keep_timestamps: bool
) -> Iterator[tuple[Any, ...]]:
    """(topic, value, key) for every row, and further arguments only if a column needs them."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    arguments: list[Iterable[Any]] = [
        repeat(topic) if topic is not None else _topics(columns["topic"]),
        columns["value"].to_pylist(),
        columns["key"].to_pylist() if "key" in columns else repeat(None),
    ]
    partitions = _partition_numbers(columns.get("partition"))
    timestamps = _timestamps_ms(columns.get("timestamp")) if keep_timestamps else None
    headers = _header_lists(columns.get("headers"))
    if partitions is not None or timestamps is not None or headers is not None:
        # callback and on_delivery come between the partition and the timestamp
        arguments += [partitions or repeat(_ANY_PARTITION), repeat(None), repeat(None)]
        arguments += [timestamps or repeat(_NOW), headers or repeat(None)]
    return zip(*arguments, strict=False)


def record_bytes(rows: pa.RecordBatch) -> int:
    """The bytes of all keys, values and headers, from Arrow's lengths: far less work than to write the records."""
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    parts = [columns[name] for name in ("key", "value") if name in columns]
    if "headers" in columns:
        entries = columns["headers"].flatten()
        parts += [entries.field("key"), entries.field("value")]
    return sum(
        pc.sum(pc.binary_length(part)).as_py() or 0 for part in parts if not pa.types.is_null(part.type)
    )


def _topics(column: pa.Array) -> list[str]:
    if column.null_count:
        raise PipelineError(
            "A row has no topic: its column `topic` is null.",
            "Set it in every row, or set the option `topic`.",
        )
    names: list[str] = column.to_pylist()
    return names


def _partition_numbers(column: pa.Array | None) -> list[int] | None:
    if column is None or column.null_count == len(column):
        return None
    if pc.any(pc.less(column, 0)).as_py():
        raise PipelineError(
            f"A row has the partition {pc.min(column).as_py()}.",
            "Set it to 0 or more, or to null to let the producer choose.",
        )
    numbers: list[int] = pc.fill_null(column, _ANY_PARTITION).to_pylist()
    return numbers


def _timestamps_ms(column: pa.Array | None) -> list[int] | None:
    if column is None or column.null_count == len(column):
        return None
    micros = column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())
    if pc.any(pc.less(micros, 0)).as_py():
        raise PipelineError(
            "A row has a timestamp before 1970, which a record cannot hold.",
            "Fix the column `timestamp`, or write without keepTimestamps.",
        )
    milliseconds: list[int] = pc.fill_null(pc.divide(micros, 1000), _NOW).to_pylist()
    return milliseconds


def _header_lists(column: pa.Array | None) -> Sequence[_Headers | None] | None:
    """None if no row has headers, which is the usual case and much faster."""
    if column is None:
        return None
    # A null list may hide values behind its offsets; an empty list hides none.
    counts = pc.fill_null(pc.list_value_length(column), 0).to_pylist()
    if not any(counts):
        return None
    entries = column.flatten()
    pairs = list(
        zip(entries.field("key").to_pylist(), _values_of(entries.field("value")).to_pylist(), strict=True)
    )
    lists: list[_Headers | None] = []
    position = 0
    for count in counts:
        lists.append(pairs[position : position + count] or None)
        position += count
    return lists


def _values_of(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary()) if pa.types.is_string(column.type) else column
