"""The settings of an archive, `[sinks.NAME]`."""

from dataclasses import dataclass

from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class ArchiveSettings:
    topics: tuple[str, ...] = setting("The topics to archive.")
    path: str = setting("The archive: a folder, or a URL such as s3a://bucket/folder or hdfs://host/folder.")
    format: str = setting(
        "delta makes each topic's folder a Delta table as well, with a Delta log beside the same Parquet files. "
        "Writing it needs no jar.",
        "parquet",
        choices=("parquet", "delta"),
    )
    every: str = setting(
        "How often files are written while the pipeline runs. Longer intervals make fewer and larger files.",
        "1 minute",
    )
    max_offsets_per_batch: int = setting("How many offsets one batch takes at most.", 1_000_000)
    fail_on_data_loss: bool = setting(
        "Stop if the topic deleted records before they were archived. With false the archive continues after the hole, "
        "which `verify` reports.",
        True,
    )
