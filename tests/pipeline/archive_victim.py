"""A driver that archives a topic and is killed: `python -m tests.pipeline.archive_victim BOOTSTRAP FOLDER TOPIC WHERE`.

It is killed where it hurts most: when the files lie at their places and the manifest is not there. WHERE is "batch", in
its second batch, or "merge", in the merge of small files after its first.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.pipeline.archiving import run_all, sink

from ottla.pipeline.archive import automatic_merge
from ottla.pipeline.archive.manifest import Batch, Claim
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.spark.session import spark_session
from ottla.pipeline.stage import ClusterSettings, Context

CONF = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
BATCH_OFFSETS = 40


def main(bootstrap: str, folder: str, topic: str, where: str) -> None:
    commit = Archive.commit

    def commit_or_die(archive: Archive, manifest: Batch | Claim, check: Any) -> None:
        if where == "batch" and isinstance(manifest, Batch) and manifest.batch_id > 0:
            die()
        commit(archive, manifest, check)

    Archive.commit = commit_or_die  # type: ignore[assignment, method-assign]
    if where == "merge":
        automatic_merge.FILES_MIN = 2
        Archive.commit_merge = die  # type: ignore[assignment, method-assign]
    spark = spark_session("victim", master="local[2]", conf=CONF)
    context = Context("victim", ClusterSettings(bootstrap), Path(folder), "checkpoints")
    run_all(spark, sink(context, topic, format="delta", max_offsets_per_batch=BATCH_OFFSETS))


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
