"""The checkers of transactions catch what they are for."""

import pytest

from ottla.sim.history import Value, Violation
from ottla.sim.transaction_history import Outcome, Place, Transaction, TransactionHistory

P0, P1 = Place("ledger", 0), Place("ledger", 1)


@pytest.fixture
def history() -> TransactionHistory:
    return TransactionHistory()


def ended(history: TransactionHistory, outcome: Outcome, records: int = 2) -> Transaction:
    transaction = history.begin("id")
    for _ in range(records):
        transaction.next_value()
    history.end("id")
    transaction.outcome = outcome
    return transaction


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_a_transaction_that_is_there_as_a_whole_passes(history: TransactionHistory, outcome: Outcome) -> None:
    first, second = ended(history, outcome).values
    history.see(P0, 0, first)
    history.check_logs({P0: [(0, first)], P1: [(0, second)]})


@pytest.mark.parametrize("outcome", [Outcome.ABORTED, Outcome.UNKNOWN])
def test_a_transaction_that_is_not_there_at_all_passes(history: TransactionHistory, outcome: Outcome) -> None:
    ended(history, outcome)
    history.check_logs({P0: [], P1: []})


@pytest.mark.parametrize("outcome", [Outcome.COMMITTED, Outcome.UNKNOWN])
def test_half_of_a_transaction_is_caught(history: TransactionHistory, outcome: Outcome) -> None:
    first, _ = ended(history, outcome).values
    with pytest.raises(Violation, match=r"are there \[1, 0\] times"):
        history.check_logs({P0: [(0, first)], P1: []})


def test_a_transaction_that_is_there_twice_is_caught(history: TransactionHistory) -> None:
    (value,) = ended(history, Outcome.COMMITTED, records=1).values
    with pytest.raises(Violation, match=r"are there \[2\] times"):
        history.check_logs({P0: [(0, value), (1, value)]})


def test_a_committed_transaction_that_is_lost_is_caught(history: TransactionHistory) -> None:
    ended(history, Outcome.COMMITTED)
    with pytest.raises(Violation, match=r"\(committed\) are there \[0, 0\] times"):
        history.check_logs({P0: []})


def test_records_of_an_aborted_transaction_are_caught(history: TransactionHistory) -> None:
    with pytest.raises(Violation, match="whose transaction is not committed"):
        history.see(P0, 0, ended(history, Outcome.ABORTED).values[0])


def test_records_of_an_open_transaction_are_caught(history: TransactionHistory) -> None:
    value = history.begin("id").next_value()
    with pytest.raises(Violation, match="whose transaction is not committed"):
        history.see(P0, 0, value)


def test_records_that_nobody_wrote_are_caught(history: TransactionHistory) -> None:
    with pytest.raises(Violation, match="nobody wrote"):
        history.see(P0, 0, Value("stranger", 0))


def test_what_was_seen_and_is_gone_is_caught(history: TransactionHistory) -> None:
    first, second = ended(history, Outcome.UNKNOWN).values
    history.see(P0, 0, first)
    history.see(P1, 0, second)
    with pytest.raises(Violation, match="was seen at offset 0"):
        history.check_logs({P0: [], P1: []})


def test_a_last_stable_offset_beyond_an_open_transaction_is_caught(history: TransactionHistory) -> None:
    transaction = history.begin("id")
    transaction.expires_s = 8.0
    transaction.first_offsets[P0] = 3
    open_before = history.surely_open(P0, 1.0)
    history.see_last_stable_offset(P0, 3, open_before, 2.0)
    with pytest.raises(Violation, match="open since offset 3"):
        history.see_last_stable_offset(P0, 4, open_before, 2.0)


def test_the_last_stable_offset_may_pass_what_has_timed_out_or_is_being_ended(
    history: TransactionHistory,
) -> None:
    transaction = history.begin("id")
    transaction.expires_s = 8.0
    transaction.first_offsets[P0] = 3
    open_before = history.surely_open(P0, 1.0)
    history.see_last_stable_offset(P0, 4, open_before, 8.0)
    history.end("id")
    history.see_last_stable_offset(P0, 5, open_before, 2.0)
    assert history.surely_open(P0, 2.0) == []


def test_a_last_stable_offset_that_goes_back_is_caught(history: TransactionHistory) -> None:
    history.see_last_stable_offset(P0, 4, [], 1.0)
    with pytest.raises(Violation, match="went back to 3"):
        history.see_last_stable_offset(P0, 3, [], 2.0)
