"""The transaction history detects every violation that it checks for."""

import pytest

from ottla.model.ids import TopicPartition
from ottla.sim.history import Value, Violation
from ottla.sim.transaction_history import Outcome, Transaction, TransactionHistory

P0, P1 = TopicPartition("ledger", 0), TopicPartition("ledger", 1)


@pytest.fixture
def history() -> TransactionHistory:
    return TransactionHistory()


def end_transaction(history: TransactionHistory, outcome: Outcome, records: int = 2) -> Transaction:
    transaction = history.begin("id")
    for _ in range(records):
        transaction.next_value()
    history.end("id")
    transaction.outcome = outcome
    return transaction


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_a_complete_transaction_passes(history: TransactionHistory, outcome: Outcome) -> None:
    first, second = end_transaction(history, outcome).values
    history.see(P0, 0, first)
    history.check_logs({P0: [(0, first)], P1: [(0, second)]})


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.UNKNOWN])
def test_a_transaction_without_visible_records_passes(history: TransactionHistory, outcome: Outcome) -> None:
    end_transaction(history, outcome)
    history.check_logs({P0: [], P1: []})


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_half_of_a_transaction_is_detected(history: TransactionHistory, outcome: Outcome) -> None:
    first, _ = end_transaction(history, outcome).values
    with pytest.raises(Violation, match=r"occur \[1, 0\] times"):
        history.check_logs({P0: [(0, first)], P1: []})


def test_a_duplicated_transaction_is_detected(history: TransactionHistory) -> None:
    (value,) = end_transaction(history, Outcome.COMMITTED, records=1).values
    with pytest.raises(Violation, match=r"occur \[2\] times"):
        history.check_logs({P0: [(0, value), (1, value)]})


def test_a_lost_committed_transaction_is_detected(history: TransactionHistory) -> None:
    end_transaction(history, Outcome.COMMITTED)
    with pytest.raises(Violation, match=r"\(committed\) occur \[0, 0\] times"):
        history.check_logs({P0: []})


def test_visible_records_of_an_aborted_transaction_are_detected(history: TransactionHistory) -> None:
    with pytest.raises(Violation, match="whose transaction is not committed"):
        history.see(P0, 0, end_transaction(history, Outcome.ABORTED).values[0])


def test_visible_records_of_an_open_transaction_are_detected(history: TransactionHistory) -> None:
    value = history.begin("id").next_value()
    with pytest.raises(Violation, match="whose transaction is not committed"):
        history.see(P0, 0, value)


def test_unknown_records_are_detected(history: TransactionHistory) -> None:
    with pytest.raises(Violation, match="no producer sent"):
        history.see(P0, 0, Value("stranger", 0))


def test_the_loss_of_a_record_that_a_consumer_saw_is_detected(history: TransactionHistory) -> None:
    first, second = end_transaction(history, Outcome.UNKNOWN).values
    history.see(P0, 0, first)
    history.see(P1, 0, second)
    with pytest.raises(Violation, match="was seen at offset 0"):
        history.check_logs({P0: [], P1: []})


def test_a_last_stable_offset_beyond_an_open_transaction_is_detected(history: TransactionHistory) -> None:
    transaction = history.begin("id")
    transaction.expires_s = 8.0
    transaction.first_offsets[P0] = 3
    open_before = history.open_transactions(P0, 1.0)
    history.see_last_stable_offset(P0, 3, open_before, 2.0)
    with pytest.raises(Violation, match="open since offset 3"):
        history.see_last_stable_offset(P0, 4, open_before, 2.0)


def test_the_last_stable_offset_may_pass_a_transaction_that_timed_out_or_is_ending(
    history: TransactionHistory,
) -> None:
    transaction = history.begin("id")
    transaction.expires_s = 8.0
    transaction.first_offsets[P0] = 3
    open_before = history.open_transactions(P0, 1.0)
    history.see_last_stable_offset(P0, 4, open_before, 8.0)
    history.end("id")
    history.see_last_stable_offset(P0, 5, open_before, 2.0)
    assert history.open_transactions(P0, 2.0) == []


def test_a_last_stable_offset_that_goes_back_is_detected(history: TransactionHistory) -> None:
    history.see_last_stable_offset(P0, 4, [], 1.0)
    with pytest.raises(Violation, match="went back to 3"):
        history.see_last_stable_offset(P0, 3, [], 2.0)
