"""The table `[sources.NAME]` of a reload."""

from dataclasses import dataclass

from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class ReloadSettings:
    path: str = setting("The archive: a folder, or a URL such as s3a://bucket/folder.")
    topics: tuple[str, ...] = setting("Which of its topics to load; all where none is named.", ())
    to: str | None = setting(
        "The topic to load into; without it each record goes to a topic of its old name.", None
    )
    partitioning: str = setting(
        "keep: each record into the partition that it had; key: by its key, where the topic has other partitions.",
        "keep",
        choices=("keep", "key"),
    )
    time_from: str | None = setting("Only records from this time on, as in 2026-01-31T12:00:00Z.", None)
    time_to: str | None = setting("Only records before this time.", None)
    offset_from: int | None = setting("Only records from this offset of each partition on.", None)
    offset_to: int | None = setting("Only records up to and without this offset of each partition.", None)
    max_offsets_per_batch: int = setting("How many offsets one batch takes at most.", 100_000)
