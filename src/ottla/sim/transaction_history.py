"""Records the transactions of a run, and checks what read_committed consumers saw of them.

Consumers must see a transaction whole if its commit was acknowledged, not at all if no commit was tried, and never in
part. While a transaction is known to be open, the last stable offset must not pass its first record.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum

from ottla.model.ids import TopicPartition
from ottla.sim.history import Value, Violation


class Outcome(Enum):
    ABORTED = "aborted"  # no commit was tried, or the coordinator rejected it
    UNKNOWN = "unknown"  # a commit was tried without a response
    COMMITTED = "committed"


@dataclass(eq=False)
class Transaction:
    """`expires_s` is the earliest time of its timeout; `first_offsets` are those of acknowledged batches."""

    name: str
    expires_s: float = math.inf
    values: list[Value] = field(default_factory=list)
    sources: dict[Value, Value] = field(default_factory=dict)  # of copied records
    first_offsets: dict[TopicPartition, int] = field(default_factory=dict)
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
        # By transactional id: a fenced producer may have an open one beside that of its successor.
        self._open: dict[str, list[Transaction]] = {}
        # By transactional id: InitProducerId requests in flight, which may end a transaction that begins meanwhile.
        self._fences: Counter[str] = Counter()
        self._seen: dict[TopicPartition, dict[int, Value]] = {}
        self._last_stable_offsets: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        # A new leader's last stable offset may be behind that of the last one.
        self.has_one_leader = True
        # Whether coordinators measure the timeouts of transactions with clocks that are right.
        self.has_right_clocks = True

    @property
    def operations(self) -> int:
        sent = sum(len(transaction.values) for transaction in self._transactions.values())
        return sent + len(self._transactions) + sum(len(seen) for seen in self._seen.values())

    def begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(f"{transactional_id}:{len(self._transactions)}")
        self._transactions[transaction.name] = transaction
        if self._fences[transactional_id]:
            transaction.is_open = False
        else:
            self._open.setdefault(transactional_id, []).append(transaction)
        return transaction

    def fence_sent(self, transactional_id: str) -> None:
        """InitProducerId was sent. It ends open transactions of this id, and those that begin before it arrives."""
        self.end(transactional_id)
        self._fences[transactional_id] += 1

    def fence_acknowledged(self, transactional_id: str) -> None:
        """InitProducerId got a response. Without one it may still arrive at any time."""
        self._fences[transactional_id] -= 1

    def end(self, transactional_id: str) -> None:
        """From now on the coordinator may end the open transactions of this id."""
        for transaction in self._open.pop(transactional_id, ()):
            transaction.is_open = False

    def open_transactions(self, partition: TopicPartition, now_s: float) -> list[Transaction]:
        return [
            transaction
            for transactions in self._open.values()
            for transaction in transactions
            if partition in transaction.first_offsets
            and now_s < transaction.expires_s
            and self.has_right_clocks
        ]

    # What read_committed consumers see

    def see(self, partition: TopicPartition, offset: int, value: Value) -> None:
        seen = self._seen.setdefault(partition, {})
        if seen.setdefault(offset, value) != value:
            raise Violation(f"offset {offset} of {partition} held {seen[offset]} and now holds {value}")
        transaction = self._transactions.get(value.producer)
        if transaction is None or value not in transaction.values:
            raise Violation(f"offset {offset} of {partition} holds {value}, which no producer sent")
        if transaction.is_open or transaction.outcome is Outcome.ABORTED:
            raise Violation(
                f"offset {offset} of {partition} holds {value}, whose transaction is not committed"
            )

    def see_last_stable_offset(
        self, partition: TopicPartition, offset: int, open_before: list[Transaction], now_s: float
    ) -> None:
        """`open_before` were open before the fetch was sent."""
        for transaction in open_before:
            if transaction.is_open and now_s < transaction.expires_s < math.inf:
                first_offset = transaction.first_offsets[partition]
                if offset > first_offset:
                    raise Violation(
                        f"the last stable offset of {partition} is {offset}, although {transaction.name} has been open "
                        f"since offset {first_offset}"
                    )
        if offset < self._last_stable_offsets.get(partition, 0) and self.has_one_leader:
            raise Violation(f"the last stable offset of {partition} went back to {offset}")
        self._last_stable_offsets[partition] = offset

    def see_position(self, partition: TopicPartition, offset: int) -> None:
        """A consumer, which began at the start of the log, has seen everything before `offset`."""
        self._positions[partition] = max(self._positions.get(partition, 0), offset)

    def source(self, value: Value) -> Value:
        return self._transactions[value.producer].sources[value]

    def check_logs(self, logs: dict[TopicPartition, list[tuple[int, Value]]]) -> None:
        """`logs` are what read_committed consumers see at the end of the run."""
        occurrences: dict[Value, int] = {}
        for partition, log in logs.items():
            found = dict(log)
            self._check_skipped(partition, found)
            for offset, value in self._seen.get(partition, {}).items():
                if found.get(offset) != value:
                    raise Violation(
                        f"{value} was seen at offset {offset} of {partition}, which holds {found.get(offset)}"
                    )
            for offset, value in log:
                self.see(partition, offset, value)
                occurrences[value] = occurrences.get(value, 0) + 1
        for transaction in self._transactions.values():
            counts = [occurrences.get(value, 0) for value in transaction.values]
            is_whole = all(count == 1 for count in counts)
            if not is_whole and (any(counts) or transaction.outcome is Outcome.COMMITTED):
                raise Violation(
                    f"the records of {transaction.name} ({transaction.outcome.value}) occur {counts} times"
                )

    def _check_skipped(self, partition: TopicPartition, found: dict[int, Value]) -> None:
        position, seen = self._positions.get(partition, 0), self._seen.get(partition, {})
        for offset, value in found.items():
            if offset < position and offset not in seen:
                raise Violation(
                    f"skipped poll: a consumer of {partition} at offset {position} did not see {value} at {offset}"
                )
