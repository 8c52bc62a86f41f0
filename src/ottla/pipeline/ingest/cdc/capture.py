"""What the capture of every database needs: its address, its tables, their topics, and the folder of its state."""

import fnmatch
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ottla.pipeline.errors import PipelineError


@dataclass(frozen=True, kw_only=True)
class DatabaseCapture:
    """What driver and executors know. `state` is a folder inside the checkpoint that all of them see."""

    host: str
    port: int
    user: str
    password: str
    tables: tuple[str, ...]
    topic: str
    server: str
    snapshot: str
    retry_s: float
    state: str

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def snapshot_folder(self) -> Path:
        return Path(self.state) / "snapshot"

    def captures(self, db: str, table: str) -> bool:
        """`db` is the part of the tables' patterns before the dot: a database, or in PostgreSQL a schema."""
        name = f"{db}.{table}"
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.tables)

    def topic_of(self, db: str, table: str) -> str:
        return self.topic.format(server=self.server, db=db, table=table)

    def to_option(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> Self:
        fields: dict[str, Any] = json.loads(text)
        return cls(**{**fields, "tables": tuple(fields["tables"])})


def check_topic_template(topic: str, source: str) -> None:
    try:
        topic.format(server="", db="", table="")
    except (KeyError, IndexError, ValueError) as error:
        raise PipelineError(
            f"`topic` of [sources.{source}] is {topic!r}, which is not a valid template: {error}.",
            "Use only the placeholders {server}, {db} and {table}.",
        ) from None


def state_folder(checkpoint: str) -> str:
    """Inside the checkpoint: who removes the checkpoint removes the state too, and the capture starts over."""
    return f"{checkpoint}/cdc".removeprefix("file://")
