"""Files that no manifest names: which of them may be deleted.

A batch or a merge that was killed leaves such files, and other files have their records. But if the manifests were
replaced by an older copy, a file that they do not name may have the only copy of its records.
"""

import logging
from collections.abc import Sequence
from typing import Any

from pyspark.sql import functions as F

from ottla.pipeline.archive.layout import MANIFESTS, hour_of, path_below_history
from ottla.pipeline.archive.manifest import Summary
from ottla.pipeline.archive.ranges import spans_by_partition, union
from ottla.pipeline.archive.store import Archive

_log = logging.getLogger(__name__)

SKIP_DAMAGED = {"ignoreCorruptFiles": "true", "ignoreMissingFiles": "true"}


def deletable(spark: Any, archive: Archive, archived: Summary, paths: Sequence[str]) -> list[str]:
    """Those of the files that have no record at an offset which the manifests do not cover. Warns of the others."""
    histories: dict[str, list[str]] = {}
    for path in paths:
        histories.setdefault(hour_of(path).topic, []).append(path)
    over = []
    for history, files in sorted(histories.items()):
        has_more = _have_more(spark, archive, archived, history, files)
        over += [path for path in files if not has_more.get(path_below_history(path), True)]
    kept = sorted(set(paths).difference(over))
    if kept:
        _log.warning(
            "%d files in the archive at %s have records that its manifests do not cover, or cannot be read; the first "
            "is %s. They are no part of the archive, and are not deleted. If %s was replaced by an older copy, "
            "restore the newest one.",
            len(kept),
            archive.url,
            kept[0],
            MANIFESTS,
        )
    return over


def _have_more(
    spark: Any, archive: Archive, archived: Summary, history: str, paths: Sequence[str]
) -> dict[str, bool]:
    """Whether each file has such a record, by its path below the history. A damaged file is not in it."""
    spans = [
        (at.partition, *span)
        for at, all_spans in spans_by_partition(archived.ranges).items()
        if at.topic == history
        for span in union(all_spans)
    ]
    covered = spark.createDataFrame(spans, "covered int, start long, end long")
    content = spark.read.schema("partition int, offset long").options(**SKIP_DAMAGED)
    rows = content.parquet(*(archive.files.url(path) for path in paths)).select(
        "partition", "offset", F.col("_metadata.file_path").alias("path")
    )
    is_covered = (
        (F.col("partition") == F.col("covered"))
        & (F.col("offset") >= F.col("start"))
        & (F.col("offset") < F.col("end"))
    )
    by_file = rows.join(F.broadcast(covered), is_covered, "left").groupBy("path")
    counted = by_file.agg(F.max(F.isnull("covered")).alias("has_more"))
    return {path_below_history(row.path): row.has_more for row in counted.collect()}
