"""After the outcome: markers in any order and after restarts; timeouts; expiry of ids."""

import pytest
from tests.unit.core.transactions.transaction_shell import (
    CLICKS,
    ORDERS,
    ORDERS_1,
    TransactionShell,
    add_command,
)

from ottla.core.transactions.commands import MarkersWritten
from ottla.core.transactions.settings import TransactionSettings
from ottla.core.transactions.shard import TransactionShard
from ottla.core.transactions.states import (
    IDLE,
    STATE_BY_STATUS,
    STATE_NAMES,
    VALID_PREVIOUS_STATES,
    TransactionState,
)
from ottla.core.transactions.timers import ExpireTransactionalIds, TransactionTimedOut
from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.transaction_records.records import TransactionPartitions

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


def test_the_transaction_is_complete_when_the_last_partition_has_its_marker() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, ORDERS, ORDERS_1, CLICKS)
    shell.end(producer, commit=True)
    (markers,) = shell.effects
    written = len(shell.records)
    shell.acknowledge(markers, CLICKS)
    shell.acknowledge(markers, CLICKS)
    shell.acknowledge(markers, ORDERS)
    assert shell.described().partitions == (ORDERS_1,)
    assert len(shell.records) == written
    shell.acknowledge(markers, ORDERS_1)
    assert shell.state() == "CompleteCommit"
    assert len(shell.records) == written + 1


def test_late_markers_do_not_complete_the_next_transaction() -> None:
    """With the same producer id, epoch and partitions: version 0 has nothing else to distinguish them."""
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, version=0)
    shell.end(producer, commit=True, version=0)
    late = shell.effects.pop()
    shell.acknowledge(late)
    shell.add(producer, version=0)
    shell.end(producer, commit=True, version=0)
    assert shell.effects == [late]
    shell.acknowledge(late)
    assert shell.state() == "PrepareCommit"
    shell.acknowledge(shell.effects.pop())
    assert shell.state() == "CompleteCommit"


def test_markers_of_a_removed_id_are_ignored() -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer)
    shell.end(producer, commit=True)
    markers = shell.effects.pop()
    other = TransactionShell()
    other.ask(MarkersWritten(markers=markers, partitions=markers.partitions))
    assert not other.records


@pytest.mark.parametrize("commit", [True, False])
def test_a_coordinator_killed_between_prepare_and_complete_finishes_on_restart(commit: bool) -> None:
    shell = TransactionShell()
    producer = shell.init()
    shell.add(producer, ORDERS, CLICKS)
    shell.end(producer, commit)
    before = shell.effects[0]
    shell.acknowledge(before, ORDERS)
    shell.restart()
    (markers,) = shell.effects
    assert markers == before  # it does not know which ones were written, so it writes all again
    shell.acknowledge(before)
    assert shell.state().startswith("Prepare")  # reports for the previous coordinator do not count
    shell.acknowledge_all()
    assert shell.state() == ("CompleteCommit" if commit else "CompleteAbort")


def test_a_prepared_transaction_without_partitions_is_completed_after_a_restart() -> None:
    shell = TransactionShell()
    shell.given(
        producer_epoch=4, transaction_status=TransactionState.PREPARE_ABORT, client_transaction_version=2
    )
    assert shell.state() == "CompleteAbort"
    assert not shell.effects


@pytest.mark.parametrize("status", [6, 7, 8, -1])
def test_a_record_with_a_state_that_is_never_written_is_corrupt(status: int) -> None:
    shell = TransactionShell()
    with pytest.raises(KafkaError) as rejection:
        shell.given(transaction_status=status)
    assert rejection.value.code is ErrorCode.corrupt_message


# -- timeouts


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced(version: int) -> None:
    shell = TransactionShell()
    producer = shell.init(timeout_ms=1000)
    shell.add(producer, version=version)
    shell.advance(500)
    shell.add(producer, CLICKS, version=version)
    shell.advance(499)
    assert shell.state() == "Ongoing"
    shell.advance(1)
    assert shell.state() == "PrepareAbort"
    (markers,) = shell.effects
    assert (markers.commit, markers.partitions) == (False, (ORDERS, CLICKS))
    assert markers.producer_epoch == producer.producer_epoch + 1
    shell.acknowledge_all()
    assert shell.state() == "CompleteAbort"
    shell.rejected(add_command(producer, ORDERS, version=version), ErrorCode.producer_fenced)


def test_the_timeout_counts_from_the_start_also_after_a_restart() -> None:
    shell = TransactionShell()
    producer = shell.init(timeout_ms=1000)
    shell.add(producer)
    shell.advance(700)
    shell.restart()
    shell.advance(299)
    assert shell.state() == "Ongoing"
    shell.advance(1)
    assert shell.state() == "PrepareAbort"


def test_a_transaction_that_timed_out_without_a_coordinator_is_aborted_at_once() -> None:
    shell = TransactionShell()
    producer = shell.init(timeout_ms=1000)
    shell.add(producer)
    shell.now_ms += 5000
    shell.restart()
    shell.advance(0)
    assert shell.state() == "PrepareAbort"


@pytest.mark.parametrize("version", [0, 2])
def test_a_transaction_that_ended_does_not_time_out(version: int) -> None:
    shell = TransactionShell()
    producer = shell.init(timeout_ms=1000)
    shell.add(producer, version=version)
    producer = shell.end(producer, commit=True, version=version)
    assert ("timeout", "id") not in shell.timers
    shell.acknowledge_all()
    shell.advance(999)
    shell.add(producer, version=version)
    shell.advance(999)
    assert shell.state() == "Ongoing"
    shell.advance(1)
    assert shell.state() == "PrepareAbort"


def test_a_stale_timer_is_harmless() -> None:
    shell = TransactionShell()
    timer = TransactionTimedOut(transactional_id="id", start_ms=shell.now_ms - 1)
    shell.decide(timer)
    producer = shell.init()
    shell.decide(timer)
    assert shell.state() == "Empty"
    shell.add(producer)
    shell.decide(timer)
    assert shell.state() == "Ongoing"
    assert shell.timers["timeout", "id"][0] == shell.now_ms + 60_000
    shell.end(producer, commit=True)
    shell.decide(timer)
    assert shell.state() == "PrepareCommit"


# -- expiry


def test_unused_transactional_ids_expire() -> None:
    shell = TransactionShell(transactional_id_expiration_ms=DAY_MS)
    shell.init("old")
    shell.advance(DAY_MS - HOUR_MS)
    shell.init("young")
    shell.advance(2 * HOUR_MS)
    assert list(shell.machine.durable_state()) == ["young"]
    key, value = shell.records[-1]
    assert (key.transactional_id, value) == ("old", None)
    shell.advance(DAY_MS)
    assert not shell.machine.durable_state()


@pytest.mark.parametrize("state", sorted(STATE_BY_STATUS.values()))
def test_only_ids_without_a_transaction_expire(state: TransactionState) -> None:
    shell = TransactionShell()
    empty = state is TransactionState.EMPTY
    partitions = (TransactionPartitions(topic="orders", partition_ids=(0,)),)
    shell.given(
        transaction_status=state,
        transaction_timeout_ms=2**31 - 1,
        transaction_partitions=None if empty else () if state in IDLE else partitions,
        transaction_start_timestamp_ms=-1 if empty else shell.now_ms,
    )
    shell.advance(8 * DAY_MS)
    assert ("id" in shell.machine.durable_state()) == (state not in IDLE)


def test_expiry_follows_the_settings_as_they_change() -> None:
    shell = TransactionShell()
    shell.init()
    shell.machine.settings = TransactionSettings(
        transactional_id_expiration_ms=1000, remove_expired_interval_ms=10
    )
    shell.decide(ExpireTransactionalIds())
    shell.advance(999)
    assert shell.machine.durable_state()
    shell.advance(20)
    assert not shell.machine.durable_state()


# -- states


def test_every_state_has_a_name_and_valid_previous_states() -> None:
    assert set(STATE_NAMES) == set(VALID_PREVIOUS_STATES) == set(TransactionState)


def test_a_prepared_transaction_can_only_complete() -> None:
    followers = {
        state: {after for after, before in VALID_PREVIOUS_STATES.items() if state in before}
        for state in TransactionState
    }
    assert followers[TransactionState.PREPARE_COMMIT] == {TransactionState.COMPLETE_COMMIT}
    assert followers[TransactionState.PREPARE_ABORT] == {TransactionState.COMPLETE_ABORT}
    assert followers[TransactionState.DEAD] == set()


def test_a_marker_in_the_transaction_log_changes_nothing() -> None:
    shell = TransactionShell()
    producer = shell.init()
    before = shell.machine.durable_state()
    shell.machine.replay_marker(producer.producer_id, True)
    assert shell.machine.durable_state() == before


def test_a_shard_rebuilt_from_the_bytes_of_its_log_equals_the_live_one() -> None:
    shell = TransactionShell()
    for transactional_id in ("a", "ä", "b"):
        producer = shell.init(transactional_id)
        shell.add(producer, ORDERS, CLICKS, ORDERS_1, transactional_id=transactional_id)
    shell.end((1000, 0), True, "a")
    rebuilt = shell.rebuilt(TransactionShard(TransactionSettings()))
    assert rebuilt.durable_state() == shell.machine.durable_state()
