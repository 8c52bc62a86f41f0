"""A position in a server's binlog: `MariaDbPosition` or `GtidSet`, behind one interface."""

from typing import Any, Protocol, Self

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.cdc.mysql.mariadb_gtid import MariaDbPosition
from ottla.pipeline.ingest.cdc.mysql.mysql_gtid import GtidSet


class BinlogPosition(Protocol):
    """Stands for all transactions before it. `connector` is Debezium's name for this type of server."""

    connector: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError for the position of another type of server."""
        ...

    def includes(self, gtid: Any) -> bool:
        """Whether the transaction comes before this position."""
        ...

    def reaches(self, other: Any) -> bool:
        """Whether all transactions before `other` come before this position too."""
        ...

    def after(self, gtid: Any) -> Self:
        """The position that includes this transaction too."""
        ...

    def transactions_to(self, end: Any) -> int:
        """How many transactions `end` includes and this position does not."""
        ...

    @property
    def progress(self) -> int:
        """A number that rises along the binlog, whatever the domain or source of the transactions."""
        ...


def parse_position(text: str) -> BinlogPosition:
    """The text shows which type of server it is from, unless it is empty."""
    return GtidSet.parse(text) if ":" in text else MariaDbPosition.parse(text)


def parse_position_like(current: BinlogPosition, text: str, address: str) -> BinlogPosition:
    """Raises PipelineError if the server is now of another type than the one which wrote `text`."""
    try:
        return type(current).parse(text)
    except ValueError:
        raise PipelineError(
            f"This source has read up to {text}, which is not a position in the binlog of the server at {address}.",
            "The server was replaced by one of another type (MariaDB or MySQL). Remove the source's checkpoint folder "
            "to start over with a new snapshot.",
        ) from None
