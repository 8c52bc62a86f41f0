"""Batches need an open transaction (KIP-890), and a late marker does not end another transaction (KIP-1228)."""

import pytest
from tests.unit.core.partition.batches import batch, marker

from ottla.core.partition.producers import NO_VERIFICATION, ProducerStateTable, Verification
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import BatchHeader

HOUR_MS = 3_600_000


def start(
    table: ProducerStateTable, *, epoch: int = 0, sequence: int = 0, version_2: bool = True
) -> Verification:
    verification = table.start_verification(7, epoch, sequence, 0, epoch_per_transaction=version_2)
    assert verification is not None
    return verification


def first_batch(offset: int = 0, *, epoch: int = 0, sequence: int = 0) -> BatchHeader:
    return batch(offset=offset, producer_id=7, epoch=epoch, sequence=sequence, transactional=True)


def rejected(table: ProducerStateTable, header: BatchHeader, verification: Verification | None) -> ErrorCode:
    before = table.entries()
    with pytest.raises(KafkaError) as caught:
        table.check(header, verification)
    assert table.entries() == before
    return caught.value.code


def in_transaction(*, epoch: int = 0, version_2: bool = True) -> ProducerStateTable:
    table = ProducerStateTable()
    verification = start(table, epoch=epoch, version_2=version_2)
    assert table.check(first_batch(epoch=epoch), verification) is None
    table.update(first_batch(epoch=epoch))
    return table


def end(table: ProducerStateTable, *, epoch: int, offset: int = 10) -> None:
    table.complete_transaction(
        marker(offset=offset, producer_id=7, epoch=epoch), commit=True, coordinator_epoch=0
    )


def test_the_first_batch_of_a_transaction_needs_a_verification_and_the_others_do_not() -> None:
    table = ProducerStateTable()
    assert rejected(table, first_batch(), None) is ErrorCode.invalid_txn_state
    verification = start(table)
    assert table.check(first_batch(), verification) is None
    table.update(first_batch())
    assert table.start_verification(7, 0, 1, 0, epoch_per_transaction=True) is None
    assert table.check(first_batch(1, sequence=1)) is None
    assert not table.is_verified(7, verification)


def test_a_known_producer_begins_a_transaction_only_with_a_verification() -> None:
    table = ProducerStateTable()
    table.update(batch(offset=0, producer_id=7, sequence=0))
    assert rejected(table, first_batch(1, sequence=1), None) is ErrorCode.invalid_txn_state
    assert table.check(first_batch(1, sequence=1), start(table, sequence=1)) is None


def test_the_verification_of_a_transaction_that_has_ended_is_not_valid() -> None:
    """The coordinator's response may come after the abort marker, and after the next verification has started."""
    table = ProducerStateTable()
    stale = start(table, version_2=False)
    end(table, epoch=0)
    assert rejected(table, first_batch(11), stale) is ErrorCode.invalid_txn_state
    fresh = start(table, version_2=False)
    assert rejected(table, first_batch(11), stale) is ErrorCode.invalid_txn_state
    assert table.check(first_batch(11), fresh) is None


def test_batches_of_the_same_transaction_share_the_verification() -> None:
    table = ProducerStateTable()
    assert start(table, sequence=0) is start(table, sequence=1)


def test_with_an_epoch_per_transaction_a_marker_does_not_end_the_verification_of_the_next() -> None:
    """The marker has the epoch of the next transaction, whose verification may have started before it arrives."""
    table = in_transaction(epoch=3)
    following = start(table, epoch=4)
    end(table, epoch=4)
    assert table.check(first_batch(11, epoch=4), following) is None
    another = ProducerStateTable()
    stale = start(another, epoch=3)
    end(another, epoch=4)
    assert rejected(another, first_batch(11, epoch=4), stale) is ErrorCode.invalid_txn_state


def test_an_old_epoch_is_rejected_without_a_verification() -> None:
    table = in_transaction(epoch=3)
    end(table, epoch=4)
    with pytest.raises(KafkaError) as caught:
        table.start_verification(7, 3, 1, 0, epoch_per_transaction=True)
    assert caught.value.code is ErrorCode.invalid_producer_epoch


def test_a_batch_does_not_belong_to_an_open_transaction_with_another_epoch() -> None:
    table = in_transaction(epoch=3)
    assert rejected(table, first_batch(1, epoch=4), None) is ErrorCode.invalid_txn_state


def test_no_batch_overtakes_the_one_with_the_lowest_sequence_that_waited() -> None:
    table = ProducerStateTable()
    table.update(batch(offset=0, count=5, producer_id=7, sequence=0))
    verification = start(table, sequence=7)
    assert start(table, sequence=5) is verification
    assert rejected(table, first_batch(5, sequence=7), verification) is ErrorCode.out_of_order_sequence_number
    assert table.check(first_batch(5, sequence=5), verification) is None


def test_a_higher_epoch_resets_the_lowest_sequence() -> None:
    table = ProducerStateTable()
    verification = start(table, epoch=3, sequence=2, version_2=False)
    assert start(table, epoch=4, sequence=6, version_2=False) is verification
    assert (verification.epoch, verification.lowest_sequence) == (4, 6)
    start(table, epoch=3, sequence=0, version_2=False)
    assert (verification.epoch, verification.lowest_sequence) == (4, 6)


def test_with_an_epoch_per_transaction_an_unknown_producer_starts_with_sequence_0() -> None:
    table = ProducerStateTable()
    code = rejected(table, first_batch(sequence=3), start(table, sequence=3))
    assert code is ErrorCode.out_of_order_sequence_number
    older = ProducerStateTable()
    assert older.check(first_batch(sequence=3), start(older, sequence=3, version_2=False)) is None


def test_without_verification_epochs_and_sequences_are_still_checked() -> None:
    table = ProducerStateTable()
    assert table.check(first_batch(sequence=9), NO_VERIFICATION) is None
    table.update(first_batch(sequence=9))
    assert (
        rejected(table, first_batch(1, sequence=12), NO_VERIFICATION)
        is ErrorCode.out_of_order_sequence_number
    )


def test_an_unused_verification_expires_with_idle_producers() -> None:
    table = ProducerStateTable()
    verification = start(table)
    table.expire(HOUR_MS - 1, HOUR_MS)
    assert table.is_verified(7, verification)
    table.expire(HOUR_MS, HOUR_MS)
    assert not table.is_verified(7, verification)


def test_the_marker_has_the_epoch_of_the_next_transaction_whose_first_sequence_is_0() -> None:
    table = in_transaction(epoch=3)
    end(table, epoch=4)
    late = first_batch(11, epoch=3, sequence=1)
    assert rejected(table, late, NO_VERIFICATION) is ErrorCode.invalid_producer_epoch
    verification = start(table, epoch=4, sequence=1)
    gap = first_batch(11, epoch=4, sequence=1)
    assert rejected(table, gap, verification) is ErrorCode.out_of_order_sequence_number
    assert table.check(first_batch(11, epoch=4), start(table, epoch=4)) is None


def test_a_late_marker_does_not_end_the_next_transaction_of_version_2() -> None:
    table = in_transaction(epoch=3)
    table.check_marker(marker(offset=1, producer_id=7, epoch=4), 0, 2)
    end(table, epoch=4)
    assert table.check(first_batch(11, epoch=4), start(table, epoch=4)) is None
    table.update(first_batch(11, epoch=4))
    with pytest.raises(KafkaError) as caught:
        table.check_marker(marker(offset=12, producer_id=7, epoch=4), 0, 2)
    assert caught.value.code is ErrorCode.invalid_producer_epoch
    # In the older protocol all transactions share an epoch, so a late marker cannot be recognized.
    table.check_marker(marker(offset=12, producer_id=7, epoch=4), 0, 0)


def test_a_marker_is_written_again_while_no_later_transaction_is_open() -> None:
    """The first copy may not be replicated yet. If the coordinator took it for written, and another leader was elected
    without it, the transaction would stay open for ever.
    """
    table = in_transaction(epoch=3)
    end(table, epoch=4)
    table.check_marker(marker(offset=11, producer_id=7, epoch=4), 0, 2)
    end(table, epoch=4, offset=11)
    assert table.first_unstable_offset() == 0, "until the first marker is replicated"
    table.on_high_watermark(11)
    assert table.first_unstable_offset() is None


def test_an_older_marker_is_rejected_even_if_no_transaction_is_open() -> None:
    table = in_transaction(epoch=3)
    end(table, epoch=4)
    with pytest.raises(KafkaError) as caught:
        table.check_marker(marker(offset=11, producer_id=7, epoch=3), 0, 2)
    assert caught.value.code is ErrorCode.invalid_producer_epoch


def test_a_marker_with_the_last_epoch_can_always_be_written_again() -> None:
    """Such an epoch begins no transaction: the producer gets another id."""
    table = in_transaction(epoch=32766)
    end(table, epoch=32767)
    table.check_marker(marker(offset=11, producer_id=7, epoch=32767), 0, 2)
