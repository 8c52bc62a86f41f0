"""A shell whose log has transactions: the producer id of each record, and markers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tests.unit.core.groups.shell import START_MS, FakeShell

from ottla.core.coordination import Decision
from ottla.model.ids import NO_PRODUCER_ID
from ottla.protocol.group_records.codec import decode_record, encode_key, encode_value
from ottla.records.records import build_packed_batch, iter_records


class Written(NamedTuple):
    key: Any
    value: Any
    producer_id: int


class Marker(NamedTuple):
    producer_id: int
    committed: bool


class TransactionalShell(FakeShell):
    """`log` also has the markers, and the producer id of each record."""

    def __init__(self, machine: Any, now_ms: int = START_MS) -> None:
        super().__init__(machine, now_ms)
        self.log: list[Written | Marker] = []

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.log.append(Marker(producer_id, committed))
        self.machine.replay_marker(producer_id, committed)
        self.machine.validate()

    def rebuilt(self, fresh: Any) -> Any:
        return replayed(self.log, fresh)

    def _perform(self, decision: Decision[Any, Any]) -> None:
        producer_id = decision.producer.producer_id if decision.producer else NO_PRODUCER_ID
        records = decision.records if decision.packed is None else unpacked(*decision.packed)
        self.log += [Written(key, value, producer_id) for key, value in records]
        super()._perform(decision)


def unpacked(number: int, payload: bytes) -> list[Any]:
    """The records of a batch with `payload`."""
    _, batch = build_packed_batch(payload, number, START_MS)
    return [decode_record(record.key or b"", record.value) for record in iter_records(batch)]


def replayed(log: Sequence[Written | Marker], fresh: Any) -> Any:
    for entry in log:
        replay_entry(entry, fresh)
    return fresh


def replay_entry(entry: Written | Marker, machine: Any) -> None:
    """Replays an entry after a round trip through bytes."""
    if isinstance(entry, Marker):
        machine.replay_marker(*entry)
        return
    key, value, producer_id = entry
    record = decode_record(encode_key(key), None if value is None else encode_value(value))
    assert record == (key, value)
    machine.replay(*record, producer_id)


def compacted(log: Sequence[Written | Marker]) -> list[Written | Marker]:
    """The log after cleaning: the last record of each key, no aborted transactions, no tombstones.

    It stops at the first record whose transaction is still open.
    """
    outcome = _outcomes(log)
    end = next((index for index, committed in enumerate(outcome) if committed is None), len(log))
    last = {
        entry.key: index
        for index, entry in enumerate(log[:end])
        if isinstance(entry, Written) and outcome[index]
    }
    kept = [
        entry
        for index, entry in enumerate(log[:end])
        if isinstance(entry, Marker) or (last.get(entry.key) == index and entry.value is not None)
    ]
    return [*kept, *log[end:]]


def _outcomes(log: Sequence[Written | Marker]) -> list[bool | None]:
    """Whether each entry is committed; None if that is not known yet."""
    outcomes: list[bool | None] = []
    ends: dict[int, bool] = {}
    for entry in reversed(log):
        if isinstance(entry, Marker):
            ends[entry.producer_id] = entry.committed
            outcomes.append(True)
        else:
            outcomes.append(True if entry.producer_id == NO_PRODUCER_ID else ends.get(entry.producer_id))
    return outcomes[::-1]
