"""The settings of a transform, `[transforms.NAME]`."""

from dataclasses import dataclass
from typing import Any

from ottla.pipeline.settings import setting


@dataclass(frozen=True)
class TransformSettings:
    """Reads topics from their beginning, transforms their records by a function or a query, and writes them once."""

    from_: str | tuple[str, ...] = setting("The topic that it reads, or a list of topics.")
    to: str = setting("The topic that it writes to. A row with a `topic` of its own goes there instead.")
    function: str = setting("The Python function that transforms: FILE.py:FUNCTION.", "")
    sql: str = setting("The file with the SQL query that transforms, instead of a function.", "")
    options: dict[str, Any] = setting(
        "Given to the function as keyword arguments, and to the query as parameters (:name).", {}
    )
    dead_letters: str = setting(
        "The topic for records that fail, with the reason. Without it, a record that fails stops the transform.",
        "",
    )
    origin_headers: bool = setting(
        "Whether each record gets headers that say from which record it was made: origin.topic, origin.partition, "
        "origin.offset, origin.timestamp. A replay compares by them.",
        True,
    )
    max_records_per_batch: int = setting(
        "At most how many records one batch has; each Spark partition of it is written in one transaction.",
        1_000_000,
    )
    fail_on_data_loss: bool = setting(
        "Stop if a topic deleted records before they were transformed. With false the transform continues with the "
        "records that are left, and logs a warning.",
        True,
    )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it reads."""
        return (self.from_,) if isinstance(self.from_, str) else self.from_
