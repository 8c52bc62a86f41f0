"""A driver that archives a topic and is killed: `python -m tests.pipeline.archive_victim BOOTSTRAP FOLDER TOPIC WHEN`.

WHEN is `before-manifest` or `after-manifest` of a batch that is not the first of this process.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.pipeline.archiving import run_all, sink

from ottla.pipeline.archive.manifest import Batch, Manifest
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.spark.session import spark_session
from ottla.pipeline.stage import Cluster, Context

CONF = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
BATCH_OFFSETS = 40


def main(bootstrap: str, folder: str, topic: str, when: str) -> None:
    commit, committed = Archive.commit, list[int]()

    def commit_and_die(archive: Archive, manifest: Manifest, check: Any) -> None:
        if committed and when == "before-manifest":
            os.kill(os.getpid(), signal.SIGKILL)
        commit(archive, manifest, check)
        if committed:
            os.kill(os.getpid(), signal.SIGKILL)
        if isinstance(manifest, Batch):
            committed.append(manifest.batch_id)

    Archive.commit = commit_and_die  # type: ignore[method-assign]
    spark = spark_session("victim", master="local[2]", conf=CONF)
    context = Context("victim", Cluster(bootstrap), Path(folder), "checkpoints")
    run_all(spark, sink(context, topic, max_offsets_per_batch=BATCH_OFFSETS))


if __name__ == "__main__":
    main(*sys.argv[1:])
