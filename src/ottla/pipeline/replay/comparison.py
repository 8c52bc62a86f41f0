"""Compares two topics with the results of one transform: the topic in use and that of a replay.

Records are matched by their origin headers and key; the third record with one origin and key matches the third. The
time of the origin tells apart records of a raw topic that was created again, whose offsets occur twice. Records without
origin headers are matched by key, in the order of the topic; those without a key by their value.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ottla.pipeline.replay.plan import Ranges, Wanted

_EXAMPLES_MAX = 3
_TEXT_LENGTH_MAX = 100
_ORIGIN = ("origin_topic", "origin_partition", "origin_offset")
_IDENTITY = (*_ORIGIN, "origin_timestamp", "key", "loose", "number")
_SHOWN = (*_ORIGIN, "key")
_KINDS = ("added", "removed", "changed")
_WANTED = "array<struct<start:long,end:long,since_ms:long>>"


class Difference(NamedTuple):
    """`origin` is topic, partition and offset of the raw record; None without origin headers."""

    kind: str
    origin: tuple[str, int, int] | None
    key: bytes | None
    old: bytes | None
    new: bytes | None


class Comparison(NamedTuple):
    """Counts over all records, and a few examples of each kind."""

    old_topic: str
    new_topic: str
    equal: int
    added: int
    removed: int
    changed: int
    examples: tuple[Difference, ...] = ()


def compare(old: DataFrame, new: DataFrame, names: tuple[str, str], ranges: Ranges) -> Comparison:
    """`old` and `new` are rows of topics. Records whose raw record is outside `ranges` are left out of both."""
    pairs = _joined(_identified(old, ranges), _identified(new, ranges)).persist()
    try:
        counts = {row.kind: row["count"] for row in pairs.groupBy("kind").count().collect()}
        examples = [example for kind in _KINDS if counts.get(kind) for example in _examples_of(pairs, kind)]
    finally:
        pairs.unpersist()
    found = {kind: counts.get(kind, 0) for kind in ("equal", *_KINDS)}
    return Comparison(*names, **found, examples=tuple(examples))


def _identified(rows: DataFrame, ranges: Ranges) -> DataFrame:
    """The columns by which records are matched, and those that are compared."""
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    offset = _origin(headers, "offset").try_cast("long")
    found = rows.select(
        _origin(headers, "topic").alias("origin_topic"),
        _origin(headers, "partition").try_cast("int").alias("origin_partition"),
        offset.alias("origin_offset"),
        _origin(headers, "timestamp").try_cast("long").alias("origin_timestamp"),
        "key",
        F.when(offset.isNull() & F.col("key").isNull(), F.col("value")).alias("loose"),
        "value",
        F.filter(headers, lambda header: ~header["key"].startswith("origin.")).alias("headers"),
        F.struct("partition", "offset").alias("place"),
    ).filter(F.col("origin_offset").isNull() | _is_within(ranges))
    window = Window.partitionBy(*_IDENTITY[:-1]).orderBy("place")
    return found.withColumn("number", F.row_number().over(window))


def _origin(headers: Column, name: str) -> Column:
    """The last header of that name: the dead letter of a record that had been transformed before has two."""
    found = F.filter(headers, lambda header: header["key"] == f"origin.{name}")
    return F.when(F.size(found) > 0, F.element_at(found, -1)["value"].cast("string"))


def _is_within(ranges: Ranges) -> Column:
    known = [
        item
        for topic, parts in ranges.items()
        for partition, wanted in parts.items()
        for item in (F.lit(f"{topic}/{partition}"), _as_column(wanted))
    ]
    if not known:
        return F.lit(False)
    place = F.concat_ws("/", "origin_topic", F.col("origin_partition").cast("string"))
    offset, time_ms = F.col("origin_offset"), F.col("origin_timestamp")

    def has(one: Column) -> Column:
        is_late = one["since_ms"].isNull() | (time_ms >= one["since_ms"])
        return (offset >= one["start"]) & (offset < one["end"]) & is_late

    return F.coalesce(F.exists(F.create_map(*known)[place], has), F.lit(False))


def _as_column(wanted: Sequence[Wanted]) -> Column:
    structs = [F.struct(*(F.lit(value).cast("long") for value in one)) for one in wanted]
    return F.array(*structs).cast(_WANTED)


def _joined(old: DataFrame, new: DataFrame) -> DataFrame:
    """Every record of either side once, and its kind: added, removed, changed or equal."""
    on = F.lit(True)
    for name in _IDENTITY:
        on = on & old[name].eqNullSafe(new[name])
    is_equal = old["value"].eqNullSafe(new["value"]) & old["headers"].eqNullSafe(new["headers"])
    kind = (
        F.when(old["place"].isNull(), "added")
        .when(new["place"].isNull(), "removed")
        .when(is_equal, "equal")
        .otherwise("changed")
    )
    return old.join(new, on, "full_outer").select(
        kind.alias("kind"),
        *(F.coalesce(old[name], new[name]).alias(name) for name in _SHOWN),
        old["value"].alias("old"),
        new["value"].alias("new"),
    )


def _examples_of(pairs: DataFrame, kind: str) -> Iterator[Difference]:
    chosen = pairs.filter(F.col("kind") == kind).orderBy(*_SHOWN).limit(_EXAMPLES_MAX)
    for row in chosen.collect():
        place = (row.origin_topic, row.origin_partition, row.origin_offset)
        key, old, new = (None if value is None else bytes(value) for value in (row.key, row.old, row.new))
        yield Difference(kind, None if None in place else place, key, old, new)


def describe(comparison: Comparison) -> Iterator[str]:
    """The lines that `ottla pipeline replay` prints."""
    yield (
        f"{comparison.new_topic} against {comparison.old_topic}: {comparison.equal:,} equal, "
        f"{comparison.changed:,} changed, {comparison.added:,} added, {comparison.removed:,} removed"
    )
    for example in comparison.examples:
        origin_text = "{}-{}@{} ".format(*example.origin) if example.origin else ""
        yield f"  {example.kind} {origin_text}key {_as_text(example.key)}"
        if example.kind != "added":
            yield f"    old: {_as_text(example.old)}"
        if example.kind != "removed":
            yield f"    new: {_as_text(example.new)}"


def _as_text(value: bytes | None) -> str:
    if value is None:
        return "null"
    text = value.decode("utf-8", errors="backslashreplace")
    return text if len(text) <= _TEXT_LENGTH_MAX else f"{text[:_TEXT_LENGTH_MAX]}..."
