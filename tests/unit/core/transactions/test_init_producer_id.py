"""InitProducerId with a transactional id (KIP-98, KIP-360, KIP-588); fields of KIP-939 are rejected."""

import pytest
from tests.unit.core.transactions.transaction_shell import (
    FIRST_PRODUCER_ID,
    LAST_USABLE_EPOCH,
    ORDERS,
    TransactionShell,
)

from ottla.core.transactions.states import TransactionState
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID


def test_a_new_transactional_id_gets_a_new_producer_id_with_epoch_0() -> None:
    shell = TransactionShell()
    assert shell.init("a") == (FIRST_PRODUCER_ID, 0)
    assert shell.init("b") == (FIRST_PRODUCER_ID + 1, 0)
    assert shell.state("a") == "Empty"


def test_every_init_producer_id_with_the_same_id_gets_the_next_epoch() -> None:
    shell = TransactionShell()
    assert [shell.init() for _ in range(3)] == [(FIRST_PRODUCER_ID, epoch) for epoch in range(3)]


def test_init_producer_id_sets_the_timeout_of_the_request() -> None:
    shell = TransactionShell()
    shell.init(timeout_ms=1000)
    shell.init(timeout_ms=2000)
    assert shell.described().timeout_ms == 2000


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_init_producer_id_after_a_complete_transaction_gets_the_next_epoch(
    commit: bool, version: int
) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=version)
    after = shell.end(producer, commit, version=version)
    shell.acknowledge_all()
    assert shell.init() == (producer.producer_id, after.producer_epoch + 1)
    assert shell.described()[1:4] == ("Empty", 60_000, -1)


# -- rejections


def test_the_empty_id_is_rejected() -> None:
    shell = TransactionShell()
    shell.rejected(shell.init_command(""), ErrorCode.invalid_request)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 900_001])
def test_a_timeout_of_0_or_beyond_the_maximum_is_rejected(timeout_ms: int) -> None:
    shell = TransactionShell()
    rejection = shell.rejected(
        shell.init_command(timeout_ms=timeout_ms), ErrorCode.invalid_transaction_timeout
    )
    assert "transaction.max.timeout.ms=900000" in rejection.message


def test_the_maximum_itself_is_a_valid_timeout() -> None:
    shell = TransactionShell()
    shell.init(timeout_ms=900_000)


def test_two_phase_commit_is_rejected_unless_it_is_enabled() -> None:
    shell = TransactionShell()
    shell.rejected(
        shell.init_command(enable_two_phase_commit=True), ErrorCode.transactional_id_authorization_failed
    )


def test_two_phase_commit_has_no_timeout() -> None:
    shell = TransactionShell(two_phase_commit_enabled=True)
    producer = shell.ask(shell.init_command(enable_two_phase_commit=True, timeout_ms=0))
    shell.add(producer)
    assert ("timeout", "id") not in shell.timers
    assert shell.described().timeout_ms == 2**31 - 1


def test_keeping_a_prepared_transaction_is_rejected() -> None:
    shell = TransactionShell(two_phase_commit_enabled=True)
    shell.rejected(
        shell.init_command(enable_two_phase_commit=True, keep_prepared=True), ErrorCode.unsupported_version
    )


@pytest.mark.parametrize("commit", [True, False])
def test_while_a_transaction_completes_init_producer_id_must_be_retried(commit: bool) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    shell.end(producer, commit)
    shell.rejected(shell.init_command(), ErrorCode.concurrent_transactions)
    shell.rejected(shell.init_command(expected=(1, 1)), ErrorCode.concurrent_transactions)


# -- fencing


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_init_producer_id_aborts_the_transaction_of_the_previous_producer(transaction_version: int) -> None:
    shell = TransactionShell(transaction_version=transaction_version)
    producer_id, epoch = shell.init()
    shell.add((producer_id, epoch), version=0)
    with pytest.raises(KafkaError) as rejection:
        shell.init()
    assert rejection.value.code is ErrorCode.concurrent_transactions
    assert shell.state() == "PrepareAbort"
    (markers,) = shell.effects
    assert (markers.producer_id, markers.producer_epoch, markers.commit) == (producer_id, epoch + 1, False)
    assert markers.partitions == (ORDERS,)
    assert markers.transaction_version == (2 if transaction_version == 2 else 0)
    assert ("timeout", "id") not in shell.timers
    shell.acknowledge_all()
    assert shell.init() == (producer_id, epoch + 2)


def test_the_last_epoch_fences_and_the_next_init_producer_id_gets_a_new_id() -> None:
    shell = TransactionShell()
    shell.given(
        producer_epoch=LAST_USABLE_EPOCH,
        transaction_status=TransactionState.ONGOING,
        client_transaction_version=2,
    )
    with pytest.raises(KafkaError):
        shell.init()
    assert shell.described()[4:6] == (FIRST_PRODUCER_ID, LAST_USABLE_EPOCH + 1)
    assert shell.state() == "CompleteAbort"
    producer_id, epoch = shell.init()
    assert producer_id != FIRST_PRODUCER_ID
    assert epoch == 0


def test_if_epochs_are_exhausted_init_producer_id_gets_a_new_producer_id() -> None:
    shell = TransactionShell()
    shell.given(producer_epoch=LAST_USABLE_EPOCH, transaction_status=TransactionState.COMPLETE_COMMIT)
    command = shell.init_command()
    assert shell.machine.needs_producer_id(command)
    assert shell.ask(command) == (command.new_producer_id, 0)


def test_a_new_producer_id_is_needed_only_if_it_is_used() -> None:
    shell = TransactionShell()
    command = shell.init_command()
    assert shell.machine.needs_producer_id(command)
    producer = shell.ask(command)
    assert not shell.machine.needs_producer_id(command)
    assert not shell.machine.needs_producer_id(shell.end_command(producer, True))
    assert not shell.machine.needs_producer_id(shell.end_command(producer, True, "unknown"))


def test_without_a_new_producer_id_init_producer_id_must_be_retried() -> None:
    shell = TransactionShell()
    shell.next_producer_id = NO_PRODUCER_ID
    shell.rejected(shell.init_command(), ErrorCode.coordinator_load_in_progress)


# -- KIP-360: a producer starts again


def test_a_producer_that_starts_again_gets_the_next_epoch() -> None:
    shell = TransactionShell()
    producer = shell.init()
    assert shell.init(expected=producer) == (producer.producer_id, 1)


def test_a_producer_that_missed_the_response_gets_the_same_again() -> None:
    shell = TransactionShell()
    producer = shell.init()
    after = shell.init(expected=producer)
    assert shell.init(expected=producer) == after
    assert shell.init(expected=producer) == after


def test_a_producer_whose_id_has_expired_gets_a_new_one() -> None:
    shell = TransactionShell()
    assert shell.init(expected=(77, 5)) == (FIRST_PRODUCER_ID, 0)


def test_a_fenced_producer_is_rejected_when_it_starts_again() -> None:
    shell = TransactionShell()
    old = shell.init()
    shell.init()
    shell.rejected(shell.init_command(expected=old), ErrorCode.producer_fenced)
    shell.rejected(shell.init_command(expected=(FIRST_PRODUCER_ID, 7)), ErrorCode.producer_fenced)
    shell.rejected(shell.init_command(expected=(FIRST_PRODUCER_ID + 50, 1)), ErrorCode.producer_fenced)
    shell.rejected(shell.init_command(expected=(FIRST_PRODUCER_ID, -1)), ErrorCode.producer_fenced)


def test_a_fenced_producer_that_starts_again_does_not_abort_the_transaction_of_the_producer_that_fenced_it() -> (
    None
):
    shell = TransactionShell()
    old = shell.init()
    new = shell.init()
    shell.add(new)
    shell.rejected(shell.init_command(expected=old), ErrorCode.producer_fenced)


def test_a_late_duplicate_of_init_producer_id_does_not_abort_the_next_transaction() -> None:
    shell = TransactionShell()
    producer = shell.init()
    duplicate = shell.init_command(expected=producer)
    after = shell.init(expected=producer)
    shell.add(after)
    shell.rejected(duplicate, ErrorCode.producer_fenced)


def test_a_producer_that_starts_again_during_a_transaction_aborts_it_and_continues() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    with pytest.raises(KafkaError) as rejection:
        shell.init(expected=producer)
    assert rejection.value.code is ErrorCode.concurrent_transactions
    shell.acknowledge_all()
    assert shell.init(expected=producer) == (producer.producer_id, 1)


def test_a_retry_gets_the_same_new_producer_id_after_exhausted_epochs() -> None:
    shell = TransactionShell()
    shell.given(
        producer_epoch=LAST_USABLE_EPOCH,
        transaction_status=TransactionState.EMPTY,
        transaction_partitions=None,
        transaction_start_timestamp_ms=-1,
    )
    old = (FIRST_PRODUCER_ID, LAST_USABLE_EPOCH)
    after = shell.init(expected=old)
    assert after.producer_epoch == 0
    assert shell.init(expected=old) == after
    assert shell.init(expected=old) == after
    shell.rejected(
        shell.init_command(expected=(FIRST_PRODUCER_ID, LAST_USABLE_EPOCH - 1)), ErrorCode.producer_fenced
    )


def test_a_fenced_producer_does_not_get_the_new_producer_id_of_its_successor() -> None:
    shell = TransactionShell()
    shell.given(producer_epoch=LAST_USABLE_EPOCH, transaction_status=TransactionState.COMPLETE_ABORT)
    shell.init()
    shell.rejected(
        shell.init_command(expected=(FIRST_PRODUCER_ID, LAST_USABLE_EPOCH)), ErrorCode.producer_fenced
    )


def test_the_request_for_the_last_usable_epoch_can_be_retried() -> None:
    shell = TransactionShell()
    shell.given(producer_epoch=LAST_USABLE_EPOCH - 1, transaction_status=TransactionState.COMPLETE_ABORT)
    before = (FIRST_PRODUCER_ID, LAST_USABLE_EPOCH - 1)
    assert shell.init(expected=before) == (FIRST_PRODUCER_ID, LAST_USABLE_EPOCH)
    assert shell.init(expected=before) == (FIRST_PRODUCER_ID, LAST_USABLE_EPOCH)


def test_a_producer_that_timed_out_with_the_last_usable_epoch_continues_with_a_new_id() -> None:
    shell = TransactionShell()
    shell.given(
        producer_epoch=LAST_USABLE_EPOCH,
        transaction_status=TransactionState.ONGOING,
        client_transaction_version=2,
    )
    shell.advance(60_000)
    old = (FIRST_PRODUCER_ID, LAST_USABLE_EPOCH)
    after = shell.init(expected=old)
    assert after.producer_id != FIRST_PRODUCER_ID
    assert after.producer_epoch == 0
    assert shell.init(expected=old) == after


def test_a_retry_of_end_txn_of_version_2_is_recognized_after_a_restart() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    after = shell.end(producer, commit=True)
    shell.acknowledge_all()
    shell.restart()
    assert shell.init(expected=producer) == after
