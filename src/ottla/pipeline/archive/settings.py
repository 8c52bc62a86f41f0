"""The settings of an archive, `[sinks.NAME]`."""

import re
from dataclasses import dataclass

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.settings import setting

_UNITS_MS = {"millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_PERIOD = re.compile(rf"(\d+)\s*({'|'.join(_UNITS_MS)})s?")


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
        "How often files are written while the pipeline runs. Longer intervals make fewer and larger files. "
        "If there is enough for a whole batch, it is written at once.",
        "1 minute",
    )
    max_offsets_per_batch: int = setting(
        "How many offsets one batch takes at most; of large records it takes fewer, about 4 GB.", 10_000_000
    )
    merge_small_files: bool = setting(
        "Merge the small files of past hours while the archive runs and is not behind, for some seconds after a batch.",
        True,
    )
    fail_on_data_loss: bool = setting(
        "Stop if the topic deleted records before they were archived. With false the archive continues after the hole, "
        "which `verify` reports.",
        True,
    )


def parse_interval_ms(text: str, where: str) -> int:
    """An interval such as "1 minute" or "1 hour 30 minutes". `where` names the stage's table in the error."""
    words = text.lower().removeprefix("interval ").strip()
    if not re.fullmatch(rf"({_PERIOD.pattern}\s*)+", words):
        raise PipelineError(
            f"{where}: `every` is {text!r}.", "Give an interval such as 30 seconds or 1 minute."
        )
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PERIOD.findall(words))
