"""A replay for a test to kill: python -m tests.pipeline.replay_victim BOOTSTRAP PIPELINE FOLDER RAW LIVE NEW."""

import sys
from pathlib import Path

from tests.pipeline.transforming import transform_in

from ottla.pipeline.replay.command import replay
from ottla.pipeline.replay.planning import ArchiveStage
from ottla.pipeline.stage import ClusterSettings, Context
from ottla.pipeline.transform.stage import Transform

# of two partitions in one batch
BATCH_RECORDS = 100


def archives(context: Context, raw: str) -> dict[str, ArchiveStage]:
    return {raw: ArchiveStage("archive", context.path("archive"))}


def transform_of(context: Context, raw: str, live: str) -> Transform:
    table = {"source": raw, "to": live, "function": "transforms.py:clean"}
    return transform_in(context, max_records_per_batch=BATCH_RECORDS, **table)


def main(bootstrap: str, pipeline: str, folder: str, raw: str, live: str, new: str) -> None:
    from ottla.pipeline.spark.session import spark_session

    spark = spark_session("dies", master="local[2,4]", conf={"spark.ui.enabled": "false"})
    context = Context(pipeline, ClusterSettings(bootstrap), Path(folder), "checkpoints")
    replay(spark, transform_of(context, raw, live), to=new, archives=archives(context, raw))


if __name__ == "__main__":
    main(*sys.argv[1:])
