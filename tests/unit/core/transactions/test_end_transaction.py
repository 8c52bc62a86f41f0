"""EndTxn: retries and delays in the older protocol and with KIP-890's epoch per transaction."""

import pytest
from tests.unit.core.transactions.transaction_shell import (
    CLICKS,
    FIRST_PRODUCER_ID,
    LAST_USABLE_EPOCH,
    ORDERS,
    TIMEOUT_MS,
    TransactionShell,
    add_command,
)

from ottla.core.transactions.commands import ProducerIdAndEpoch
from ottla.core.transactions.states import TransactionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID

VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])
OUTCOMES = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


def ended(shell: TransactionShell, commit: bool, version: int = 2) -> ProducerIdAndEpoch:
    """Completes a transaction; returns its producer."""
    producer = shell.init()
    shell.add(producer, version=version)
    shell.end(producer, commit, version=version)
    shell.acknowledge_all()
    return producer


@VERSIONS
@OUTCOMES
def test_the_outcome_is_written_to_the_log_before_the_markers(commit: bool, version: int) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, ORDERS, CLICKS, version=version)
    shell.end(producer, commit, version=version)
    assert shell.state() == ("PrepareCommit" if commit else "PrepareAbort")
    (markers,) = shell.effects
    assert markers.commit is commit
    assert markers.partitions == (ORDERS, CLICKS)
    assert markers.transaction_version == (2 if version == 2 else 0)
    shell.acknowledge_all()
    assert shell.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert shell.described().partitions == ()


@OUTCOMES
def test_with_version_0_the_producer_keeps_its_epoch(commit: bool) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=0)
    assert shell.end(producer, commit, version=0) == producer
    assert shell.effects[0].producer_epoch == producer.producer_epoch


@OUTCOMES
def test_with_version_2_each_transaction_has_its_own_epoch(commit: bool) -> None:
    shell = TransactionShell()
    producer = shell.init()
    for epoch in range(3):
        assert producer.producer_epoch == epoch
        shell.add(producer)
        producer = shell.end(producer, commit)
        assert shell.effects[0].producer_epoch == epoch + 1
        shell.acknowledge_all()


# -- rejections


@VERSIONS
@OUTCOMES
def test_the_wrong_producer_is_rejected(commit: bool, version: int) -> None:
    shell = TransactionShell()
    producer_id, epoch = shell.init()
    shell.rejected(shell.end_command((producer_id, epoch), commit, "", version), ErrorCode.invalid_request)
    unknown = shell.end_command((producer_id, epoch), commit, "unknown", version)
    shell.rejected(unknown, ErrorCode.invalid_producer_id_mapping)
    shell.init()
    shell.init()
    shell.add((producer_id, 2))
    for wrong, code in (
        ((producer_id + 1, 2), ErrorCode.invalid_producer_id_mapping),
        ((producer_id, 0), ErrorCode.producer_fenced),
        ((producer_id, 1), ErrorCode.producer_fenced),
        ((producer_id, 3), ErrorCode.producer_fenced),
        ((producer_id, -1), ErrorCode.producer_fenced),
    ):
        shell.rejected(shell.end_command(wrong, commit, version=version), code)


@VERSIONS
@OUTCOMES
def test_while_the_transaction_completes_end_txn_must_be_retried(commit: bool, version: int) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=version)
    after = shell.end(producer, commit, version=version)
    for again in (True, False):
        shell.rejected(shell.end_command(producer, again, version=version), ErrorCode.concurrent_transactions)
        shell.rejected(shell.end_command(after, again, version=version), ErrorCode.concurrent_transactions)


@OUTCOMES
def test_with_version_0_end_txn_needs_a_transaction(commit: bool) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.rejected(shell.end_command(producer, commit, version=0), ErrorCode.invalid_txn_state)


@OUTCOMES
def test_with_version_0_the_same_outcome_can_be_retried_and_another_is_rejected(commit: bool) -> None:
    shell = TransactionShell()
    producer = ended(shell, commit, version=0)
    shell.rejected(shell.end_command(producer, not commit, version=0), ErrorCode.invalid_txn_state)
    written = len(shell.records)
    assert shell.end(producer, commit, version=0) == producer
    assert len(shell.records) == written


# -- the table of KIP-890


def test_version_2_in_state_empty_rejects_a_commit() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.rejected(shell.end_command(producer, True), ErrorCode.invalid_txn_state)


@OUTCOMES
def test_version_2_in_state_empty_fences_the_previous_epoch(commit: bool) -> None:
    shell = TransactionShell()
    before = shell.init()
    shell.init()
    shell.rejected(shell.end_command(before, commit), ErrorCode.producer_fenced)


@OUTCOMES
def test_a_retry_of_the_same_end_gets_the_same_response_with_version_2(commit: bool) -> None:
    shell = TransactionShell()
    producer = ended(shell, commit)
    written = len(shell.records)
    assert shell.end(producer, commit) == (producer.producer_id, producer.producer_epoch + 1)
    shell.restart()
    assert shell.end(producer, commit) == (producer.producer_id, producer.producer_epoch + 1)
    assert len(shell.records) == written


@OUTCOMES
def test_a_retry_with_another_outcome_is_rejected_with_version_2(commit: bool) -> None:
    shell = TransactionShell()
    producer = ended(shell, commit)
    shell.rejected(shell.end_command(producer, not commit), ErrorCode.invalid_txn_state)


@OUTCOMES
def test_a_commit_without_a_transaction_is_rejected(commit: bool) -> None:
    shell = TransactionShell()
    producer_id, epoch = ended(shell, commit)
    shell.rejected(shell.end_command((producer_id, epoch + 1), True), ErrorCode.invalid_txn_state)


@pytest.mark.parametrize("before", ["Empty", "CompleteCommit", "CompleteAbort"])
def test_an_abort_without_a_transaction_uses_an_epoch_and_is_complete_at_once(before: str) -> None:
    """The producer does not know whether its first batch, which adds the partition, has arrived."""
    shell = TransactionShell()
    if before == "Empty":
        producer = shell.init()
    else:
        producer_id, epoch = ended(shell, before == "CompleteCommit")
        producer = ProducerIdAndEpoch(producer_id, epoch + 1)
    shell.advance(5)
    assert shell.end(producer, commit=False) == (producer.producer_id, producer.producer_epoch + 1)
    assert shell.state() == "CompleteAbort"
    assert shell.described().start_ms == shell.now_ms
    assert not shell.effects
    assert shell.end(producer, commit=False) == (producer.producer_id, producer.producer_epoch + 1)


def test_a_transaction_without_partitions_is_complete_at_once() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.ask(add_command(producer))
    shell.end(producer, commit=True)
    assert shell.state() == "CompleteCommit"
    assert not shell.effects


# -- exhausted epochs


def given_last_epoch(shell: TransactionShell, state: TransactionState) -> ProducerIdAndEpoch:
    shell.given(producer_epoch=LAST_USABLE_EPOCH, transaction_status=state, client_transaction_version=2)
    return ProducerIdAndEpoch(FIRST_PRODUCER_ID, LAST_USABLE_EPOCH)


@OUTCOMES
def test_if_epochs_are_exhausted_the_producer_continues_with_a_new_id(commit: bool) -> None:
    shell = TransactionShell()
    old = given_last_epoch(shell, TransactionState.ONGOING)
    shell.add(old)
    new = shell.end(old, commit)
    assert new.producer_id != old.producer_id
    assert new.producer_epoch == 0
    (markers,) = shell.effects
    assert (markers.producer_id, markers.producer_epoch) == (old.producer_id, LAST_USABLE_EPOCH + 1)
    # Its markers are not written yet, so the new id is not known, but is not wrong either.
    shell.rejected(add_command(new, ORDERS), ErrorCode.concurrent_transactions)
    shell.rejected(shell.end_command(new, commit), ErrorCode.concurrent_transactions)
    shell.restart()
    shell.acknowledge_all()
    assert shell.end(old, commit) == new
    shell.rejected(shell.end_command(old, not commit), ErrorCode.invalid_txn_state)
    shell.restart()
    assert shell.end(old, commit) == new
    shell.add(new)
    assert shell.machine.durable_state()["id"].previous_producer_id == new.producer_id  # as Kafka writes it
    shell.rejected(shell.end_command(old, commit), ErrorCode.invalid_producer_id_mapping)


def test_an_abort_without_a_transaction_gets_a_new_id_if_the_epochs_are_exhausted() -> None:
    shell = TransactionShell()
    old = given_last_epoch(shell, TransactionState.COMPLETE_COMMIT)
    new = shell.end(old, commit=False)
    assert new.producer_id != old.producer_id
    assert new.producer_epoch == 0
    assert shell.end(old, commit=False) == new


def test_a_producer_that_timed_out_with_the_last_usable_epoch_does_not_get_the_epoch_that_fenced_it() -> None:
    shell = TransactionShell()
    old = given_last_epoch(shell, TransactionState.ONGOING)
    shell.advance(60_000)
    assert shell.described().producer_epoch == LAST_USABLE_EPOCH + 1
    fencing = (old.producer_id, LAST_USABLE_EPOCH + 1)
    for version in (0, 2):
        shell.rejected(add_command(fencing, ORDERS, version=version), ErrorCode.producer_fenced)
        shell.rejected(shell.end_command(fencing, False, version=version), ErrorCode.producer_fenced)
    new = shell.end(old, commit=False)
    assert new.producer_id != old.producer_id
    assert new.producer_epoch == 0
    assert shell.end(old, commit=False) == new
    shell.restart()
    assert shell.end(old, commit=False) == new


def test_without_a_new_producer_id_end_txn_must_be_retried() -> None:
    shell = TransactionShell()
    old = given_last_epoch(shell, TransactionState.ONGOING)
    shell.next_producer_id = NO_PRODUCER_ID
    command = shell.end_command(old, True)
    assert shell.machine.needs_producer_id(command)
    shell.rejected(command, ErrorCode.coordinator_load_in_progress)


def test_with_version_0_epochs_are_not_used_up() -> None:
    shell = TransactionShell()
    old = given_last_epoch(shell, TransactionState.ONGOING)
    assert shell.end(old, commit=True, version=0) == old


# -- delays


def test_with_version_0_a_delayed_commit_ends_a_later_transaction() -> None:
    """Found by Jepsen in every Kafka with that protocol, and fixed by KIP-890: the two cannot be distinguished."""
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=0)
    delayed = shell.end_command(producer, True, version=0)
    shell.end(producer, commit=True, version=0)
    shell.acknowledge_all()
    shell.add(producer, CLICKS, version=0)
    shell.ask(delayed)
    assert shell.state() == "PrepareCommit"
    assert shell.effects[0].partitions == (CLICKS,)


@OUTCOMES
def test_with_version_2_a_delayed_end_does_not_end_a_later_transaction(commit: bool) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    delayed = shell.end_command(producer, commit)
    after = shell.end(producer, commit)
    shell.acknowledge_all()
    shell.add(after, CLICKS)
    shell.rejected(delayed, ErrorCode.producer_fenced)
    shell.end(after, commit)
    shell.rejected(delayed, ErrorCode.concurrent_transactions)
    shell.acknowledge_all()
    shell.rejected(delayed, ErrorCode.producer_fenced)


def test_with_version_2_delayed_partitions_do_not_begin_a_transaction() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    delayed = add_command(producer, CLICKS)
    shell.end(producer, commit=True)
    shell.acknowledge_all()
    shell.rejected(delayed, ErrorCode.producer_fenced)


@OUTCOMES
def test_a_fenced_producer_of_version_2_does_not_get_the_epoch_of_a_producer_of_version_0(
    commit: bool,
) -> None:
    """One epoch later, complete, with the same outcome: it looks like a retry, but is another producer's
    transaction.
    """
    shell = TransactionShell()
    old = shell.init()
    new = shell.init()
    assert new.producer_epoch == old.producer_epoch + 1
    shell.add(new, version=0)
    shell.end(new, commit, version=0)
    shell.acknowledge_all()
    shell.rejected(shell.end_command(old, commit), ErrorCode.producer_fenced)


@OUTCOMES
def test_a_transaction_that_ended_with_version_0_is_no_retry_for_version_2(
    commit: bool,
) -> None:
    shell = TransactionShell()
    before = shell.init()
    producer = shell.init(expected=before)
    shell.add(producer, version=0)
    shell.end(producer, commit, version=0)
    shell.acknowledge_all()
    shell.rejected(shell.end_command(before, commit), ErrorCode.producer_fenced)


def test_a_producer_that_timed_out_learns_that_its_transaction_is_aborted() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    shell.advance(60_000)
    shell.acknowledge_all()
    shell.rejected(shell.end_command(producer, True), ErrorCode.invalid_txn_state)
    assert shell.end(producer, commit=False) == (producer.producer_id, producer.producer_epoch + 1)


@pytest.mark.parametrize("moves", [False, True], ids=["same coordinator", "next coordinator"])
@pytest.mark.parametrize("jump_ms", [-3_600_000, -30_000, 0])
def test_a_transaction_ends_after_its_timeout_even_if_the_clock_was_set_back(
    jump_ms: int, moves: bool
) -> None:
    """A clock that was an hour ahead must not hold up read-committed consumers for an hour."""
    shell = TransactionShell()
    shell.add(shell.init())
    shell.advance(1_000)
    shell.set_clock(jump_ms)
    if moves:
        shell.restart()
    shell.advance(TIMEOUT_MS - 2_000 if jump_ms == 0 or not moves else 1_000)
    assert shell.state() == "Ongoing"
    shell.advance(TIMEOUT_MS)
    assert shell.state() == "PrepareAbort"


def test_a_clock_set_forward_does_not_end_a_transaction_early() -> None:
    shell = TransactionShell()
    shell.add(shell.init())
    shell.set_clock(3_600_000)
    shell.advance(TIMEOUT_MS - 1)
    assert shell.state() == "Ongoing"
    shell.advance(1)
    assert shell.state() == "PrepareAbort"
