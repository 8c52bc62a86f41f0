"""MariaDB's global transaction ids, and positions in its binlog.

A GTID is `domain-server-sequence`. Within a domain, sequence numbers rise in the order of the binlog. So a position,
the last GTID of each domain, says of every transaction whether it comes before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class MariaDbGtid(NamedTuple):
    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "MariaDbGtid":
        domain, server, sequence = text.split("-")
        return cls(int(domain), int(server), int(sequence))


@dataclass(frozen=True)
class MariaDbPosition:
    """The last transaction of each domain; empty before the first transaction."""

    last: Mapping[int, MariaDbGtid]

    connector = "mariadb"

    @classmethod
    def parse(cls, text: str) -> "MariaDbPosition":
        gtids = [MariaDbGtid.parse(part.strip()) for part in text.split(",") if part.strip()]
        return cls({gtid.domain: gtid for gtid in gtids})

    def __str__(self) -> str:
        return ",".join(str(self.last[domain]) for domain in sorted(self.last))

    def includes(self, gtid: MariaDbGtid) -> bool:
        seen = self.last.get(gtid.domain)
        return seen is not None and gtid.sequence <= seen.sequence

    def reaches(self, other: "MariaDbPosition") -> bool:
        return all(self.includes(gtid) for gtid in other.last.values())

    def after(self, gtid: MariaDbGtid) -> "MariaDbPosition":
        return MariaDbPosition({**self.last, gtid.domain: gtid})

    def transactions_to(self, end: "MariaDbPosition") -> int:
        """Counts a few too many if sequence numbers were skipped."""
        return sum(max(0, gtid.sequence - self._sequence(gtid.domain)) for gtid in end.last.values())

    def _sequence(self, domain: int) -> int:
        return self.last[domain].sequence if domain in self.last else 0

    @property
    def progress(self) -> int:
        return sum(gtid.sequence for gtid in self.last.values())
