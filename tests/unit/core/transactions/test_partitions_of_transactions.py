"""AddPartitionsToTxn, AddOffsetsToTxn, and verification by partition leaders (KIP-890)."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.core.transactions.transaction_shell import (
    CLICKS,
    ORDERS,
    ORDERS_1,
    TransactionShell,
    add_command,
    verify_command,
)

from ottla.core.coordination import Command
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

MakeCommand = Callable[..., Command[Any]]
QUESTIONS = pytest.mark.parametrize("command", [add_command, verify_command])


def test_the_first_partition_begins_the_transaction() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.advance(10)
    shell.add(producer)
    described = shell.described()
    assert described.state == "Ongoing"
    assert described.start_ms == shell.now_ms
    assert described.partitions == (ORDERS,)


def test_more_partitions_are_added_and_the_start_time_stays() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, ORDERS)
    start_ms = shell.now_ms
    shell.advance(10)
    shell.add(producer, CLICKS, ORDERS_1, CLICKS)
    assert shell.described().partitions == (ORDERS, ORDERS_1, CLICKS)  # by topic, as the record has them
    assert shell.described().start_ms == start_ms


def test_partitions_that_are_in_the_transaction_are_not_written_again() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, ORDERS, CLICKS)
    written = len(shell.records)
    shell.add(producer, CLICKS)
    assert len(shell.records) == written


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_follows_a_complete_one(commit: bool, version: int) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=version)
    producer = shell.end(producer, commit, version=version)
    shell.acknowledge_all()
    shell.advance(10)
    shell.add(producer, CLICKS, version=version)
    assert shell.described()[1:4] == ("Ongoing", 60_000, shell.now_ms)
    assert shell.described().partitions == (CLICKS,)


@QUESTIONS
def test_partitions_of_the_wrong_producer_are_rejected(command: MakeCommand) -> None:
    shell = TransactionShell()
    producer_id, epoch = shell.init()
    shell.rejected(command((producer_id, epoch), ORDERS, transactional_id=""), ErrorCode.invalid_request)
    shell.rejected(
        command((producer_id, epoch), ORDERS, transactional_id="unknown"),
        ErrorCode.invalid_producer_id_mapping,
    )
    shell.init()
    shell.rejected(command((producer_id + 1, 1), ORDERS), ErrorCode.invalid_producer_id_mapping)
    shell.rejected(command((producer_id, 0), ORDERS), ErrorCode.producer_fenced)
    shell.rejected(command((producer_id, 2), ORDERS), ErrorCode.producer_fenced)


@QUESTIONS
@pytest.mark.parametrize("commit", [True, False])
def test_while_the_last_transaction_completes_add_partitions_must_be_retried(
    command: MakeCommand, commit: bool
) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    producer = shell.end(producer, commit)
    shell.rejected(command(producer, ORDERS), ErrorCode.concurrent_transactions)


def test_verification_returns_which_partitions_are_in_the_transaction() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, ORDERS, CLICKS)
    written = len(shell.records)
    assert shell.ask(verify_command(producer, CLICKS, ORDERS_1)) == (
        (CLICKS, ErrorCode.none),
        (ORDERS_1, ErrorCode.transaction_abortable),
    )
    assert len(shell.records) == written


def test_verification_fails_before_the_transaction_has_begun() -> None:
    shell = TransactionShell()
    producer = shell.init()
    assert shell.ask(verify_command(producer, ORDERS)) == ((ORDERS, ErrorCode.transaction_abortable),)
    assert shell.state() == "Empty"


def test_a_late_batch_does_not_belong_to_the_transaction_that_ended() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=0)
    shell.end(producer, commit=False, version=0)
    shell.acknowledge_all()
    assert shell.ask(verify_command(producer, ORDERS)) == ((ORDERS, ErrorCode.transaction_abortable),)


def test_offsets_are_added_by_the_partition_of_their_group() -> None:
    shell = TransactionShell()
    producer = shell.init()
    offsets = TopicPartition("__consumer_offsets", 17)
    shell.add(producer, ORDERS)
    shell.add(producer, offsets)
    shell.end(producer, commit=True)
    assert shell.effects[0].partitions == (ORDERS, offsets)
