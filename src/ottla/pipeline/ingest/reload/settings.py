"""The settings of a reload."""

from dataclasses import dataclass

from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class ReloadSettings:
    """`[sources.NAME]` with `kind = "archive"`."""

    path: str = setting("The archive: a folder, or a URL such as s3a://bucket/folder.")
    topics: tuple[str, ...] = setting("The topics to load; all of the archive's if none is named.", ())
    to: str | None = setting(
        "The topic to load into; without it, each record goes to a topic of the same name as before.", None
    )
    partitioning: str = setting(
        "keep: each record into the partition that it had; key: by its key, if the topic has other partitions.",
        "keep",
        choices=("keep", "key"),
    )
    time_from: str | None = setting("Only records from this time on, as in 2026-01-31T12:00:00Z.", None)
    time_to: str | None = setting("Only records before this time.", None)
    offset_from: int | None = setting("Only records from this offset of each partition on.", None)
    offset_to: int | None = setting("Only records before this offset of each partition.", None)
    max_offsets_per_batch: int = setting("The most offsets of one batch.", 100_000)
