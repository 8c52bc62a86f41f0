"""The transactional ids of one shard. An id is changed only by writing a record."""

from dataclasses import fields
from operator import attrgetter
from typing import Any

from ottla.core.coordination import Decision
from ottla.core.transactions.metadata import TransactionMetadata, metadata_from_record
from ottla.core.transactions.settings import TransactionSettings
from ottla.core.transactions.states import STATE_NAMES, VALID_PREVIOUS_STATES, TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID
from ottla.protocol.transaction_records.records import TransactionLogKey, TransactionLogValue

_FIELDS = tuple(field.name for field in fields(TransactionLogValue))
_values_of = attrgetter(*_FIELDS)

TransactionDecision = Decision[TransactionLogKey, TransactionLogValue]


class TransactionStore:
    def __init__(self, settings: TransactionSettings) -> None:
        self.settings = settings
        self.by_id: dict[str, TransactionMetadata] = {}
        # How many ids are in each state, by its number: metrics ask for it, and there may be very many ids.
        self.state_counts = [0] * len(TransactionState)

    def replay(self, key: TransactionLogKey, value: TransactionLogValue | None) -> None:
        metadata = None if value is None else metadata_from_record(key.transactional_id, value)
        before = self.by_id.get(key.transactional_id)
        if before is not None:
            self.state_counts[before.state] -= 1
        if metadata is not None:
            self.state_counts[metadata.state] += 1
            self.by_id[key.transactional_id] = metadata
        elif before is not None:
            del self.by_id[key.transactional_id]

    def get(self, transactional_id: str) -> TransactionMetadata:
        """Raises INVALID_REQUEST for an empty id, INVALID_PRODUCER_ID_MAPPING for an unknown one."""
        metadata = self.by_id.get(transactional_id)
        if metadata is None:
            check_transactional_id(transactional_id)
            raise KafkaError(
                ErrorCode.invalid_producer_id_mapping,
                f"the transactional id {transactional_id!r} is not known, or has expired; initialize the producer",
            )
        return metadata

    def write(
        self,
        transactional_id: str,
        record: TransactionLogValue,
        last_producer_epoch: int,
        decision: TransactionDecision,
    ) -> TransactionMetadata:
        decision.write(TransactionLogKey(transactional_id=transactional_id), record)
        metadata = self.by_id[transactional_id]
        metadata.last_producer_epoch = last_producer_epoch
        return metadata

    def transition(
        self,
        transactional_id: str,
        state: TransactionState,
        last_producer_epoch: int,
        decision: TransactionDecision,
        now_ms: int,
        **changes: Any,
    ) -> TransactionMetadata:
        """Moves a known id to `state`, with these `changes` to its record."""
        before = self.by_id[transactional_id]
        assert before.state in VALID_PREVIOUS_STATES[state], (
            f"{transactional_id!r} cannot go from {STATE_NAMES[before.state]} to {STATE_NAMES[state]}"
        )
        # Not dataclasses.replace: it takes twice as long, and this runs three times in every transaction.
        values = dict(zip(_FIELDS, _values_of(before.record), strict=True))
        values["previous_producer_id"] = before.record.producer_id
        values["transaction_status"] = int(state)
        values["transaction_last_update_timestamp_ms"] = now_ms
        values.update(changes)
        return self.write(transactional_id, TransactionLogValue(**values), last_producer_epoch, decision)

    def validate(self) -> None:
        counted = [0] * len(TransactionState)
        for metadata in self.by_id.values():
            metadata.validate()
            counted[metadata.state] += 1
        assert self.state_counts == counted, "the counts by state are not those of the transactional ids"


def check_transactional_id(transactional_id: str) -> None:
    if not transactional_id:
        raise KafkaError(ErrorCode.invalid_request, "the transactional id is empty; set one, or leave it out")


def check_has_producer_id(new_producer_id: int) -> None:
    """It is missing if the epochs ran out after `needs_producer_id` was called, or the controller sent no ids yet."""
    if new_producer_id == NO_PRODUCER_ID:
        raise KafkaError(
            ErrorCode.coordinator_load_in_progress,
            "no producer id is available at this moment; retry",
        )
