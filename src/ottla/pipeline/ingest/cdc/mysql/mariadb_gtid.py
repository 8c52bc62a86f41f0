"""MariaDB's global transaction ids: which transactions a position has seen.

A GTID is `domain-server-sequence`. In a domain sequence numbers rise in the order of the binlog, so a position, the
last GTID of each domain, says of every transaction whether it is included.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class Gtid(NamedTuple):
    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> "Gtid":
        domain, server, sequence = text.split("-")
        return cls(int(domain), int(server), int(sequence))


@dataclass(frozen=True)
class Position:
    """The last transaction of each domain; empty before the first one."""

    last: Mapping[int, Gtid]

    connector = "mariadb"

    @classmethod
    def parse(cls, text: str) -> "Position":
        gtids = [Gtid.parse(part.strip()) for part in text.split(",") if part.strip()]
        return cls({gtid.domain: gtid for gtid in gtids})

    def __str__(self) -> str:
        return ",".join(str(self.last[domain]) for domain in sorted(self.last))

    def includes(self, gtid: Gtid) -> bool:
        seen = self.last.get(gtid.domain)
        return seen is not None and gtid.sequence <= seen.sequence

    def reaches(self, other: "Position") -> bool:
        return all(self.includes(gtid) for gtid in other.last.values())

    def after(self, gtid: Gtid) -> "Position":
        return Position({**self.last, gtid.domain: gtid})

    def transactions_to(self, end: "Position") -> int:
        """How many there are up to `end`, or a little fewer where sequence numbers were left out."""
        return sum(max(0, gtid.sequence - self.sequence(gtid.domain)) for gtid in end.last.values())

    def sequence(self, domain: int) -> int:
        return self.last[domain].sequence if domain in self.last else 0

    @property
    def age(self) -> int:
        """Rises along the binlog, whatever the domain."""
        return sum(gtid.sequence for gtid in self.last.values())
