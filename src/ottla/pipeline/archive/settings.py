"""The table `[sinks.NAME]` of an archive."""

from dataclasses import dataclass

from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class ArchiveSettings:
    topics: tuple[str, ...] = setting("The topics to archive.")
    path: str = setting(
        "Where the archive lies: a folder, or a URL such as s3a://bucket/folder or hdfs://host/folder."
    )
    format: str = setting(
        "delta makes each topic's folder a Delta table as well, by a log beside the same Parquet files; writing it "
        "needs no jar.",
        "parquet",
        choices=("parquet", "delta"),
    )
    every: str = setting(
        "How often files are written while the pipeline runs: seldom makes few and large files.", "1 minute"
    )
    max_offsets_per_batch: int = setting("How many offsets one batch takes at most.", 1_000_000)
    fail_on_data_loss: bool = setting(
        "Stop when the topic has deleted records before they were archived; false goes on behind the hole, which "
        "`verify` names.",
        True,
    )
