"""DescribeTransactions and ListTransactions (KIP-664, KIP-1152)."""

from typing import Any

import pytest
from tests.unit.core.transactions.transaction_shell import (
    CLICKS,
    FIRST_PRODUCER_ID,
    ORDERS,
    TransactionShell,
)

from ottla.core.transactions.commands import DescribeTransaction, ListTransactions
from ottla.core.transactions.states import TransactionState
from ottla.model.errors import ErrorCode


def shell_with_transactions() -> TransactionShell:
    """ "etl-empty" since the beginning, "etl-open" for 5 s, "web-ending" for 1 s."""
    shell = TransactionShell()
    shell.init("etl-empty")
    producer = shell.init("etl-open")
    shell.add(producer, transactional_id="etl-open")
    shell.advance(4000)
    producer = shell.init("web-ending")
    shell.add(producer, ORDERS, CLICKS, transactional_id="web-ending")
    shell.end(producer, True, "web-ending")
    shell.advance(1000)
    return shell


def listed(**filters: Any) -> list[str]:
    return [each.transactional_id for each in shell_with_transactions().ask(ListTransactions(**filters))]


def test_all_transactions_are_listed_with_their_producer_and_state() -> None:
    assert shell_with_transactions().ask(ListTransactions()) == (
        ("etl-empty", FIRST_PRODUCER_ID, "Empty"),
        ("etl-open", FIRST_PRODUCER_ID + 1, "Ongoing"),
        ("web-ending", FIRST_PRODUCER_ID + 2, "PrepareCommit"),
    )


def test_transactions_are_listed_by_producer_id() -> None:
    assert listed(producer_ids=frozenset({FIRST_PRODUCER_ID, 7})) == ["etl-empty"]


def test_transactions_are_listed_by_state() -> None:
    assert listed(states=frozenset({"Ongoing", "PrepareCommit"})) == ["etl-open", "web-ending"]
    assert listed(states=frozenset({"ongoing", "Nonsense"})) == []


@pytest.mark.parametrize(
    ("duration_ms", "names"),
    [(0, ["etl-open", "web-ending"]), (999, ["etl-open", "web-ending"]), (1000, ["etl-open"]), (5000, [])],
)
def test_transactions_are_listed_by_their_duration(duration_ms: int, names: list[str]) -> None:
    """As in Kafka, an id without a transaction counts as open since the epoch."""
    assert listed(duration_ms=duration_ms) == ["etl-empty", *names]


def test_transactions_are_listed_by_a_pattern_of_the_whole_id() -> None:
    assert listed(transactional_id_pattern="etl-.*") == ["etl-empty", "etl-open"]
    assert listed(transactional_id_pattern="etl") == []
    assert len(listed(transactional_id_pattern="")) == 3


def test_listed_transactions_match_all_filters() -> None:
    assert listed(transactional_id_pattern="etl-.*", duration_ms=4000, states=frozenset({"Ongoing"})) == [
        "etl-open"
    ]


def test_an_invalid_pattern_is_rejected() -> None:
    shell = shell_with_transactions()
    rejection = shell.rejected(
        ListTransactions(transactional_id_pattern="(etl"), ErrorCode.invalid_regular_expression
    )
    assert "`(etl`" in rejection.message


def test_a_transaction_is_described() -> None:
    shell = shell_with_transactions()
    assert shell.described("etl-open") == (
        "etl-open",
        "Ongoing",
        60_000,
        shell.now_ms - 5000,
        FIRST_PRODUCER_ID + 1,
        0,
        (ORDERS,),
    )
    assert shell.described("etl-empty")[1:] == ("Empty", 60_000, -1, FIRST_PRODUCER_ID, 0, ())


def test_an_unknown_transactional_id_cannot_be_described() -> None:
    shell = TransactionShell()
    shell.rejected(DescribeTransaction(transactional_id=""), ErrorCode.invalid_request)
    shell.rejected(DescribeTransaction(transactional_id="unknown"), ErrorCode.transactional_id_not_found)


class UnwalkableIds(dict[str, Any]):
    def __iter__(self) -> Any:
        raise AssertionError("all transactional ids were visited")

    keys = values = items = __iter__


def test_transactional_ids_are_counted_by_state_without_a_visit_to_each() -> None:
    """A scrape asks for the counts in one turn of the event loop. `validate` compares them after every event."""
    shell = shell_with_transactions()
    store = shell.machine._store
    store.by_id, everything = UnwalkableIds(store.by_id), store.by_id
    expected = {TransactionState.EMPTY: 1, TransactionState.ONGOING: 1, TransactionState.PREPARE_COMMIT: 1}
    assert shell.machine.state_counts() == expected
    store.by_id = everything
    shell.advance(120_000)  # the open transaction times out, and its markers are not written
    expected = {
        TransactionState.EMPTY: 1,
        TransactionState.PREPARE_ABORT: 1,
        TransactionState.PREPARE_COMMIT: 1,
    }
    assert shell.machine.state_counts() == expected


def test_validation_finds_a_wrong_count_of_states() -> None:
    shell = shell_with_transactions()
    shell.machine._store.state_counts[TransactionState.EMPTY] += 1
    with pytest.raises(AssertionError, match="counts by state"):
        shell.machine.validate()
