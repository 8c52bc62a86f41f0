"""A place in a server's binlog: MariaDB's `Position` or MySQL's `GtidSet`, by the same questions."""

from typing import Any, Protocol, Self

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import Position
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet


class Place(Protocol):
    """The transactions before it. `connector` is Debezium's name for the kind of server."""

    connector: str

    @classmethod
    def parse(cls, text: str) -> Self: ...

    def includes(self, gtid: Any) -> bool: ...

    def reaches(self, other: Any) -> bool: ...

    def after(self, gtid: Any) -> Self: ...

    def transactions_to(self, end: Any) -> int: ...

    @property
    def age(self) -> int: ...


def place(text: str) -> Place:
    """Of which kind of server it is shows in the text, unless it is empty."""
    return GtidSet.parse(text) if ":" in text else Position.parse(text)


def place_like(other: Place, text: str, address: str) -> Place:
    """Of the kind that the server has now, which may be another one than at the last start."""
    try:
        return type(other).parse(text)
    except ValueError:
        raise PipelineError(
            f"This source has read up to {text}, which is no place in the binlog of the server at {address}.",
            "Another kind of server is there than before. Remove the source's checkpoint folder to begin with a new "
            "snapshot.",
        ) from None
