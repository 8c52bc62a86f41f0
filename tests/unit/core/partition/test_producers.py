"""KIP-98, KIP-360: the state of idempotent and transactional producers in a partition."""

import pytest
from tests.unit.core.partition.batches import batch, marker

from ottla.core.partition.producers import (
    NO_VERIFICATION,
    CompletedTxn,
    Duplicate,
    ProducerEntry,
    ProducerStateTable,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import BatchHeader

SEQUENCE_MAX = 2**31 - 1


def append(table: ProducerStateTable, header: BatchHeader) -> None:
    assert table.check(header, NO_VERIFICATION) is None
    table.update(header)


def rejection(table: ProducerStateTable, header: BatchHeader) -> KafkaError:
    before = table.entries()
    with pytest.raises(KafkaError) as caught:
        table.check(header)
    assert table.entries() == before
    return caught.value


def filled(*, batches: int = 1, producer_id: int = 7, epoch: int = 0) -> ProducerStateTable:
    """Batches of two records each, from offset 100 and sequence 0."""
    table = ProducerStateTable()
    for number in range(batches):
        append(
            table,
            batch(
                offset=100 + 2 * number,
                count=2,
                producer_id=producer_id,
                epoch=epoch,
                sequence=2 * number,
                timestamp=1000 + number,
            ),
        )
    return table


def test_a_batch_that_follows_the_last_sequence_is_accepted() -> None:
    table = filled(batches=3)
    assert table.check(batch(producer_id=7, sequence=6)) is None


@pytest.mark.parametrize("number", range(5))
def test_a_retry_of_any_of_the_last_five_batches_gets_the_original_offsets(number: int) -> None:
    table = filled(batches=8)
    retried = 3 + number
    duplicate = table.check(batch(producer_id=7, count=2, sequence=2 * retried))
    assert duplicate == Duplicate(100 + 2 * retried, 101 + 2 * retried, 1000 + retried)


def test_a_retry_of_the_sixth_last_batch_is_out_of_order() -> None:
    error = rejection(filled(batches=8), batch(producer_id=7, count=2, sequence=4))
    assert error.code is ErrorCode.out_of_order_sequence_number


def test_a_batch_that_overlaps_a_known_one_without_being_it_is_out_of_order() -> None:
    table = filled(batches=2)
    for header in (
        batch(producer_id=7, count=3, sequence=2),
        batch(producer_id=7, count=1, sequence=3),
        batch(producer_id=7, count=4, sequence=0),
    ):
        assert rejection(table, header).code is ErrorCode.out_of_order_sequence_number


def test_a_gap_in_the_sequence_is_rejected_with_the_expected_sequence() -> None:
    error = rejection(filled(batches=2), batch(producer_id=7, sequence=9))
    assert error.code is ErrorCode.out_of_order_sequence_number
    assert "producer 7" in error.message
    assert "sequence 9" in error.message
    assert "4 was expected" in error.message


def test_an_old_epoch_is_fenced() -> None:
    error = rejection(filled(epoch=3), batch(producer_id=7, epoch=2, sequence=2))
    assert error.code is ErrorCode.invalid_producer_epoch
    assert "epoch 2 of producer 7" in error.message


def test_an_old_epoch_is_fenced_even_when_it_repeats_a_known_sequence() -> None:
    table = filled(epoch=0)
    table.update(batch(offset=102, producer_id=7, epoch=1, sequence=0))
    assert (
        rejection(table, batch(producer_id=7, count=2, epoch=0, sequence=0)).code
        is ErrorCode.invalid_producer_epoch
    )


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    table = filled(batches=2)
    error = rejection(table, batch(producer_id=7, epoch=1, sequence=4))
    assert error.code is ErrorCode.out_of_order_sequence_number
    append(table, batch(offset=104, producer_id=7, epoch=1, sequence=0))
    assert rejection(table, batch(producer_id=7, epoch=1, sequence=4)).code is error.code


def test_an_unknown_producer_may_start_with_any_sequence() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=5, producer_id=7, sequence=1234))
    assert table.check(batch(producer_id=7, sequence=1235)) is None


def test_sequences_wrap_from_2_to_the_31_minus_1_to_zero() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=0, count=3, producer_id=7, sequence=SEQUENCE_MAX - 1))  # ends with 0
    assert table.check(batch(count=3, producer_id=7, sequence=SEQUENCE_MAX - 1)) == Duplicate(0, 2, 0)
    assert rejection(table, batch(producer_id=7, sequence=0)).code is ErrorCode.out_of_order_sequence_number
    append(table, batch(offset=3, producer_id=7, sequence=1))
    table = ProducerStateTable()
    append(table, batch(offset=0, producer_id=7, sequence=SEQUENCE_MAX))
    append(table, batch(offset=1, producer_id=7, sequence=0))


def test_a_batch_outside_the_open_transaction_of_its_producer_is_rejected() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=0, producer_id=7, sequence=0, transactional=True))
    assert rejection(table, batch(producer_id=7, sequence=1)).code is ErrorCode.invalid_txn_state


def test_a_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=10, producer_id=7, sequence=0, transactional=True))
    append(table, batch(offset=11, producer_id=7, sequence=1, transactional=True))
    assert table.has_open_transaction(7)
    assert table.first_unstable_offset() == 10
    completed = table.complete_transaction(marker(offset=12, producer_id=7), commit=True, coordinator_epoch=4)
    assert completed == CompletedTxn(7, 10, 12, is_aborted=False)
    assert not table.has_open_transaction(7)
    assert table.entries()[0].coordinator_epoch == 4


def test_an_ended_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=10, producer_id=7, sequence=0, transactional=True))
    table.complete_transaction(marker(offset=11, producer_id=7), commit=False, coordinator_epoch=0)
    table.on_high_watermark(11)
    assert table.first_unstable_offset() == 10
    table.on_high_watermark(12)
    assert table.first_unstable_offset() is None


def test_the_first_unstable_offset_is_that_of_the_oldest_transaction() -> None:
    table = ProducerStateTable()
    for producer_id in (1, 2, 3):
        append(table, batch(offset=10 * producer_id, producer_id=producer_id, sequence=0, transactional=True))
    completed = table.complete_transaction(marker(offset=40, producer_id=2), commit=True, coordinator_epoch=0)
    assert completed is not None
    assert table.last_stable_offset(completed) == 10
    table.on_high_watermark(41)
    assert table.first_unstable_offset() == 10
    completed = table.complete_transaction(marker(offset=41, producer_id=1), commit=True, coordinator_epoch=0)
    assert completed is not None
    assert table.last_stable_offset(completed) == 30
    completed = table.complete_transaction(marker(offset=42, producer_id=3), commit=True, coordinator_epoch=0)
    assert completed is not None
    assert table.last_stable_offset(completed) == 43


def test_a_marker_without_data_completes_nothing_but_moves_the_epoch() -> None:
    table = filled()
    assert (
        table.complete_transaction(
            marker(offset=102, producer_id=7, epoch=1), commit=False, coordinator_epoch=0
        )
        is None
    )
    assert table.first_unstable_offset() is None
    assert rejection(table, batch(producer_id=7, sequence=2)).code is ErrorCode.invalid_producer_epoch
    assert table.check(batch(producer_id=7, epoch=1, sequence=0)) is None


def test_sequences_continue_after_a_marker_of_the_same_epoch() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=0, producer_id=7, sequence=0, transactional=True))
    table.complete_transaction(marker(offset=1, producer_id=7), commit=True, coordinator_epoch=0)
    append(table, batch(offset=2, producer_id=7, sequence=1, transactional=True))
    assert table.first_unstable_offset() == 0  # the first one's marker is not replicated yet
    table.on_high_watermark(3)
    assert table.first_unstable_offset() == 2


def test_a_zombie_coordinator_is_fenced() -> None:
    table = ProducerStateTable()
    table.complete_transaction(marker(offset=0, producer_id=7), commit=True, coordinator_epoch=5)
    table.check_marker(marker(offset=1, producer_id=7), 5)
    with pytest.raises(KafkaError) as caught:
        table.check_marker(marker(offset=1, producer_id=7), 4)
    assert caught.value.code is ErrorCode.transaction_coordinator_fenced


def test_a_marker_of_an_old_producer_epoch_is_rejected() -> None:
    table = filled(epoch=2)
    with pytest.raises(KafkaError) as caught:
        table.check_marker(marker(offset=102, producer_id=7, epoch=1), 0)
    assert caught.value.code is ErrorCode.invalid_producer_epoch


def test_a_coordinators_batch_has_no_sequence_but_its_epoch_is_checked() -> None:
    table = ProducerStateTable()
    for offset in (0, 1):
        header = batch(offset=offset, producer_id=7, epoch=1, transactional=True)
        table.check_coordinator_batch(header)
        table.update(header)
    assert table.first_unstable_offset() == 0
    with pytest.raises(KafkaError) as caught:
        table.check_coordinator_batch(batch(producer_id=7, epoch=0, transactional=True))
    assert caught.value.code is ErrorCode.invalid_producer_epoch


def test_update_never_fails_for_an_accepted_batch() -> None:
    table = filled(batches=2, epoch=5)
    table.update(batch(offset=104, producer_id=7, epoch=4, sequence=77))
    assert table.check(batch(producer_id=7, epoch=4, sequence=78)) is None


def test_idle_producers_expire_but_not_within_a_transaction() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=0, producer_id=1, sequence=0, timestamp=100))
    append(table, batch(offset=1, producer_id=2, sequence=0, timestamp=100, transactional=True))
    append(table, batch(offset=2, producer_id=3, sequence=0, timestamp=150))
    assert table.expire(now_ms=199, expiration_ms=100) == 0
    assert table.expire(now_ms=200, expiration_ms=100) == 1
    assert [entry.producer_id for entry in table.entries()] == [2, 3]
    assert table.check(batch(producer_id=1, sequence=40)) is None


def test_producers_stay_known_when_the_log_start_moves_past_their_records() -> None:
    table = filled(batches=2)
    table.truncate_before(1000)
    assert table.check(batch(producer_id=7, count=2, sequence=2)) == Duplicate(102, 103, 1001)


def test_ended_transactions_below_the_log_start_are_stable() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=0, producer_id=7, sequence=0, transactional=True))
    table.complete_transaction(marker(offset=1, producer_id=7), commit=True, coordinator_epoch=0)
    table.truncate_before(2)
    assert table.first_unstable_offset() is None


def test_a_snapshot_restores_the_last_batch_of_each_producer_and_its_transaction() -> None:
    table = filled(batches=3)
    append(table, batch(offset=200, producer_id=8, sequence=0, timestamp=5, transactional=True))
    append(table, batch(offset=150, producer_id=9, sequence=0, timestamp=5, transactional=True))
    table.complete_transaction(
        marker(offset=201, producer_id=10, timestamp=6), commit=True, coordinator_epoch=3
    )
    entries = table.entries()
    assert entries[0] == ProducerEntry(7, 0, 5, 105, 1, 1002, -1, -1)
    assert entries[1] == ProducerEntry(8, 0, 0, 200, 0, 5, -1, 200)
    assert entries[3] == ProducerEntry(10, 0, -1, -1, 0, 6, 3, -1)

    restored = ProducerStateTable()
    restored.update(batch(offset=1, producer_id=99, sequence=0))  # forgotten by the load
    restored.load(entries)
    assert restored.entries() == entries
    assert restored.first_unstable_offset() == 150
    assert restored.check(batch(producer_id=7, count=2, sequence=4)) == Duplicate(104, 105, 1002)
    assert restored.check(batch(producer_id=7, sequence=6)) is None
    with pytest.raises(KafkaError):  # only the last batch is in a snapshot
        restored.check(batch(producer_id=7, count=2, sequence=2))


def test_clear_removes_everything() -> None:
    table = ProducerStateTable()
    append(table, batch(offset=0, producer_id=7, sequence=0, transactional=True))
    table.clear()
    assert len(table) == 0
    assert table.entries() == []
    assert table.first_unstable_offset() is None
