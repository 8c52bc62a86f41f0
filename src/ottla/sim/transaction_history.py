"""What transactional producers did in a run, and whether what `read_committed` showed of it could be so.

A transaction is seen whole or not at all: whole where its commit was acknowledged, not at all where nobody tried to
commit it. While a producer surely has it open, the last stable offset stays at or before its first record.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ottla.sim.history import Value, Violation


class Place(NamedTuple):
    topic: str
    partition: int


class Outcome(Enum):
    ABORTED = "aborted"  # no commit was tried, or the coordinator refused it
    UNKNOWN = "unknown"  # a commit was tried, and not answered
    COMMITTED = "committed"


@dataclass(eq=False)
class Transaction:
    """`expires_s` is when it times out at the earliest; `first_offsets` are those of acknowledged batches."""

    name: str
    expires_s: float = math.inf
    values: list[Value] = field(default_factory=list)
    sources: dict[Value, Value] = field(default_factory=dict)  # what was copied
    first_offsets: dict[Place, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.ABORTED
    is_open: bool = True

    def next_value(self, source: Value | None = None) -> Value:
        value = Value(self.name, len(self.values))
        self.values.append(value)
        if source is not None:
            self.sources[value] = source
        return value


class TransactionHistory:
    def __init__(self) -> None:
        self._transactions: dict[str, Transaction] = {}
        self._open: dict[str, list[Transaction]] = {}  # by transactional id: a fenced producer has one, too
        self._fences: Counter[str] = Counter()  # requests on their way that may end what begins meanwhile
        self._seen: dict[Place, dict[int, Value]] = {}
        self._last_stable_offsets: dict[Place, int] = {}

    def begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(f"{transactional_id}:{len(self._transactions)}")
        self._transactions[transaction.name] = transaction
        if self._fences[transactional_id]:
            transaction.is_open = False
        else:
            self._open.setdefault(transactional_id, []).append(transaction)
        return transaction

    def fence_sent(self, transactional_id: str) -> None:
        """Whoever takes the id over ends what is open, and what its owner begins before the request arrives."""
        self.end(transactional_id)
        self._fences[transactional_id] += 1

    def fence_answered(self, transactional_id: str) -> None:
        """Not where the answer was lost: then the request may arrive at any time."""
        self._fences[transactional_id] -= 1

    def end(self, transactional_id: str) -> None:
        """From now on the coordinator may end whatever is open under this id."""
        for transaction in self._open.pop(transactional_id, ()):
            transaction.is_open = False

    def surely_open(self, place: Place, now_s: float) -> list[Transaction]:
        return [
            transaction
            for transactions in self._open.values()
            for transaction in transactions
            if place in transaction.first_offsets and now_s < transaction.expires_s
        ]

    # -- what a consumer of read_committed is shown

    def see(self, place: Place, offset: int, value: Value) -> None:
        seen = self._seen.setdefault(place, {})
        if seen.setdefault(offset, value) != value:
            raise Violation(f"offset {offset} of {place} held {seen[offset]} and now holds {value}")
        transaction = self._transactions.get(value.producer)
        if transaction is None or value not in transaction.values:
            raise Violation(f"offset {offset} of {place} holds {value}, which nobody wrote")
        if transaction.is_open or transaction.outcome is Outcome.ABORTED:
            raise Violation(f"offset {offset} of {place} shows {value}, whose transaction is not committed")

    def see_last_stable_offset(
        self, place: Place, offset: int, open_before: list[Transaction], now_s: float
    ) -> None:
        """`open_before` were open before the consumer asked."""
        for transaction in open_before:
            if transaction.is_open and now_s < transaction.expires_s < math.inf:
                first_offset = transaction.first_offsets[place]
                if offset > first_offset:
                    raise Violation(
                        f"the last stable offset of {place} is {offset}, although {transaction.name} has been open "
                        f"since offset {first_offset}"
                    )
        if offset < self._last_stable_offsets.get(place, 0):
            raise Violation(f"the last stable offset of {place} went back to {offset}")
        self._last_stable_offsets[place] = offset

    def source(self, value: Value) -> Value:
        return self._transactions[value.producer].sources[value]

    def check_logs(self, logs: dict[Place, list[tuple[int, Value]]]) -> None:
        """`logs` are all that consumers of read_committed are shown at the end."""
        times: dict[Value, int] = {}
        for place, log in logs.items():
            there = dict(log)
            for offset, value in self._seen.get(place, {}).items():
                if there.get(offset) != value:
                    raise Violation(
                        f"{value} was seen at offset {offset} of {place}, which holds {there.get(offset)}"
                    )
            for offset, value in log:
                self.see(place, offset, value)
                times[value] = times.get(value, 0) + 1
        for transaction in self._transactions.values():
            counts = [times.get(value, 0) for value in transaction.values]
            whole = all(count == 1 for count in counts)
            if not whole and (any(counts) or transaction.outcome is Outcome.COMMITTED):
                raise Violation(
                    f"the records of {transaction.name} ({transaction.outcome.value}) are there {counts} times"
                )
