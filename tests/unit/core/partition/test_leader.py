"""Which batches a partition leader accepts, their offsets, and which offsets may be read."""

import pytest
from tests.unit.core.partition.batches import batch, marker

from ottla.core.partition.effects import Effects
from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.leader import (
    AppendOrigin,
    AppendPlan,
    LeaderSettings,
    PartitionLeader,
    TransactionMarker,
)
from ottla.core.partition.log_offsets import MutableLogOffsets
from ottla.core.partition.producers import NO_VERIFICATION, ProducerStateTable
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import TIMESTAMP_TYPE_MASK, BatchHeader

NOW = 1_000_000


class LeaderAndLog:
    """A leader with one replica, and the parts of the log that it needs."""

    def __init__(self, *, settings: LeaderSettings | None = None, log_end_offset: int = 0) -> None:
        self.offsets = MutableLogOffsets(0, log_end_offset)
        self.producers = ProducerStateTable()
        self.epochs = LeaderEpochCache()
        self.leader = PartitionLeader(
            self.offsets,
            self.producers,
            self.epochs,
            leader_epoch=3,
            high_watermark=log_end_offset,
            local_id=1,
            replica_ids=[1],
            isr=[1],
            settings=settings or LeaderSettings(),
            now_ms=NOW,
        )

    def append(self, *headers: BatchHeader, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendPlan:
        plan = self.leader.plan_append(
            headers, NOW, required_acks=-1, origin=origin, verification=NO_VERIFICATION
        )
        self.write(plan)
        return plan

    def end_transaction(self, producer_id: int) -> AppendPlan:
        header = marker(offset=0, producer_id=producer_id)
        plan = self.leader.plan_marker(header, TransactionMarker(producer_id, 0, True, 0), NOW)
        self.write(plan)
        return plan

    def delete_records(self, offset: int) -> int:
        offset = self.leader.check_delete_records(offset)
        previous = self.offsets.start
        self.offsets.start = max(previous, offset)
        self.leader.on_log_start_moved(previous)
        return offset

    def write(self, plan: AppendPlan, *, awaits_flush: bool = False) -> Effects:
        for planned in plan.batches:
            self.epochs.assign(planned.header.partition_leader_epoch, planned.header.base_offset)
            if planned.header.is_control:
                self.producers.complete_transaction(planned.header, commit=True, coordinator_epoch=0)
            elif planned.header.producer_id >= 0:
                self.producers.update(planned.header)
        if plan.batches:
            self.offsets.end = plan.last_offset + 1
        return self.leader.on_appended(plan, NOW, awaits_flush=awaits_flush)


def rejected(log: LeaderAndLog, *headers: BatchHeader) -> KafkaError:
    before = log.offsets.end, log.leader.high_watermark
    with pytest.raises(KafkaError) as caught:
        log.leader.plan_append(headers, NOW, required_acks=1)
    assert (log.offsets.end, log.leader.high_watermark) == before
    return caught.value


def test_a_batch_gets_the_log_end_offset_and_the_leader_epoch_and_keeps_the_rest() -> None:
    log = LeaderAndLog(log_end_offset=40)
    sent = batch(offset=0, count=3, timestamp=NOW)
    plan = log.append(sent)
    assert plan == AppendPlan(plan.batches, 40, 42, -1, False)
    (planned,) = plan.batches
    assert planned.header == sent._replace(base_offset=40, partition_leader_epoch=3)
    assert (planned.position, planned.rewritten) == (0, False)
    assert log.offsets.end == 43


def test_with_one_replica_an_append_is_committed_at_once() -> None:
    log = LeaderAndLog()
    plan = log.leader.plan_append([batch(count=2)], NOW, required_acks=-1)
    assert log.leader.high_watermark == 0
    assert log.write(plan).high_watermark_moved
    assert log.leader.high_watermark == 2
    assert log.leader.is_acknowledged(2)
    assert not log.leader.is_acknowledged(3)


def test_records_that_await_a_flush_are_not_committed_before_it() -> None:
    log = LeaderAndLog()
    leader = log.leader
    for end_offset in (2, 4):
        plan = leader.plan_append([batch(count=2)], NOW, required_acks=-1)
        assert not log.write(plan, awaits_flush=True).high_watermark_moved
        assert (leader.high_watermark, log.offsets.end) == (0, end_offset)
    assert leader.on_flushed(2, NOW).high_watermark_moved
    assert leader.high_watermark == 2
    assert not leader.on_flushed(2, NOW).high_watermark_moved
    assert leader.on_flushed(4, NOW).high_watermark_moved
    assert leader.high_watermark == 4


def test_a_plan_that_is_not_written_changes_nothing() -> None:
    log = LeaderAndLog()
    header = batch(producer_id=7, sequence=0)
    first = log.leader.plan_append([header], NOW, required_acks=1)
    assert log.leader.plan_append([header], NOW, required_acks=1) == first


def test_with_log_append_time_the_broker_sets_the_timestamp() -> None:
    log = LeaderAndLog(settings=LeaderSettings(log_append_time=True))
    plan = log.append(batch(timestamp=5))
    (planned,) = plan.batches
    assert plan.log_append_time_ms == NOW
    assert planned.rewritten
    assert planned.header.is_log_append_time
    assert planned.header.max_timestamp == NOW
    assert planned.header.base_timestamp == 5


def test_only_a_broker_may_mark_a_batch_log_append_time() -> None:
    log = LeaderAndLog(settings=LeaderSettings(log_append_time=True))
    assert rejected(log, batch(attributes=TIMESTAMP_TYPE_MASK)).code is ErrorCode.invalid_timestamp


def test_on_a_create_time_topic_the_log_append_time_bit_is_cleared() -> None:
    (planned,) = LeaderAndLog().append(batch(attributes=TIMESTAMP_TYPE_MASK | 4)).batches
    assert planned.rewritten
    assert planned.header.attributes == 4


def test_a_batch_larger_than_max_message_bytes_is_rejected_with_both_sizes() -> None:
    log = LeaderAndLog(settings=LeaderSettings(max_message_bytes=1000))
    log.append(batch(size=1000))
    error = rejected(log, batch(size=1001))
    assert error.code is ErrorCode.message_too_large
    assert "1001" in error.message
    assert "max.message.bytes=1000" in error.message


def test_an_append_larger_than_a_segment_is_rejected() -> None:
    log = LeaderAndLog(settings=LeaderSettings(segment_bytes=150))
    with pytest.raises(KafkaError) as caught:
        log.append(batch(), batch(), origin=AppendOrigin.COORDINATOR)
    assert caught.value.code is ErrorCode.record_list_too_large


def test_a_timestamp_too_far_in_the_future_is_rejected() -> None:
    log = LeaderAndLog(settings=LeaderSettings(timestamp_after_max_ms=500))
    log.append(batch(timestamp=NOW + 500))
    error = rejected(log, batch(timestamp=NOW + 501))
    assert error.code is ErrorCode.invalid_timestamp
    assert "message.timestamp.after.max.ms=500" in error.message


def test_with_log_append_time_the_clients_timestamps_do_not_matter() -> None:
    settings = LeaderSettings(log_append_time=True, timestamp_after_max_ms=0)
    LeaderAndLog(settings=settings).append(batch(timestamp=NOW + 10_000_000))


@pytest.mark.parametrize("count", [0, 2])
def test_a_produce_request_has_exactly_one_batch_for_each_partition(count: int) -> None:
    log = LeaderAndLog()
    error = rejected(log, *[batch() for _ in range(count)])
    assert error.code is ErrorCode.invalid_record


def test_a_coordinator_may_append_several_batches() -> None:
    log = LeaderAndLog(log_end_offset=10)
    plan = log.append(batch(count=2, size=150), batch(count=3), origin=AppendOrigin.COORDINATOR)
    assert [(planned.header.base_offset, planned.position) for planned in plan.batches] == [
        (10, 0),
        (12, 150),
    ]
    assert (plan.first_offset, plan.last_offset) == (10, 14)


def test_a_retried_batch_gets_its_original_offsets_and_is_not_appended_again() -> None:
    log = LeaderAndLog(log_end_offset=10)
    header = batch(count=2, producer_id=7, sequence=0, timestamp=55)
    log.append(header)
    log.append(batch(count=2, producer_id=7, sequence=2))
    plan = log.leader.plan_append([header], NOW, required_acks=-1)
    assert plan == AppendPlan([], 10, 11, 55, True)
    assert not log.write(plan).high_watermark_moved
    assert log.offsets.end == 14


def test_a_sequence_error_rejects_the_append() -> None:
    log = LeaderAndLog()
    log.append(batch(producer_id=7, epoch=1, sequence=0))
    gap = rejected(log, batch(producer_id=7, epoch=1, sequence=5))
    assert gap.code is ErrorCode.out_of_order_sequence_number
    fenced = rejected(log, batch(producer_id=7, epoch=0, sequence=1))
    assert fenced.code is ErrorCode.invalid_producer_epoch


def test_a_marker_from_a_zombie_coordinator_is_rejected() -> None:
    log = LeaderAndLog()
    log.producers.complete_transaction(marker(offset=0, producer_id=7), commit=True, coordinator_epoch=5)
    with pytest.raises(KafkaError) as caught:
        log.leader.plan_marker(marker(offset=0, producer_id=7), TransactionMarker(7, 0, True, 4), NOW)
    assert caught.value.code is ErrorCode.transaction_coordinator_fenced


def test_a_read_committed_fetch_ends_before_the_first_open_transaction() -> None:
    log = LeaderAndLog()
    log.append(batch(count=5))
    log.append(batch(producer_id=7, sequence=0, transactional=True))
    log.append(batch(count=4))
    assert log.leader.last_stable_offset == 5
    assert log.leader.fetch_limit(1, is_follower=False) == 5
    assert log.leader.fetch_limit(0, is_follower=False) == 10
    log.end_transaction(7)
    assert log.leader.last_stable_offset == 11


def test_a_transaction_that_was_replicated_before_a_restart_is_stable_after_it() -> None:
    producers = ProducerStateTable()
    producers.update(batch(offset=0, producer_id=7, sequence=0, transactional=True))
    producers.complete_transaction(marker(offset=1, producer_id=7), commit=True, coordinator_epoch=0)
    leader = PartitionLeader(
        MutableLogOffsets(0, 2),
        producers,
        LeaderEpochCache(),
        leader_epoch=4,
        high_watermark=2,
        local_id=1,
        replica_ids=[1],
        isr=[1],
        settings=LeaderSettings(),
        now_ms=NOW,
    )
    assert leader.last_stable_offset == 2


def test_the_last_stable_offset_is_never_before_the_log() -> None:
    log = LeaderAndLog()
    log.append(batch(count=5, producer_id=7, sequence=0, transactional=True))
    log.append(batch(count=5))
    log.delete_records(7)
    assert log.leader.last_stable_offset == 7


def test_a_client_with_an_old_leader_epoch_is_fenced_and_one_with_a_newer_epoch_must_retry() -> None:
    leader = LeaderAndLog().leader
    leader.check_epoch(3)
    leader.check_epoch(-1)
    with pytest.raises(KafkaError) as caught:
        leader.check_epoch(2)
    assert caught.value.code is ErrorCode.fenced_leader_epoch
    with pytest.raises(KafkaError) as caught:
        leader.check_epoch(4)
    assert caught.value.code is ErrorCode.unknown_leader_epoch


def test_a_new_leader_knows_its_epoch_before_its_first_append() -> None:
    log = LeaderAndLog(log_end_offset=40)
    assert log.epochs.entries() == [(3, 40)]


def test_records_can_be_deleted_up_to_the_high_watermark() -> None:
    log = LeaderAndLog()
    log.append(batch(count=10))
    assert log.delete_records(4) == 4
    assert log.offsets.start == log.leader.low_watermark == 4
    assert log.delete_records(2) == 2
    assert log.offsets.start == 4
    for offset in (11, -2):
        with pytest.raises(KafkaError) as caught:
            log.delete_records(offset)
        assert caught.value.code is ErrorCode.offset_out_of_range
    assert log.delete_records(-1) == 10
    assert log.offsets.start == 10


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted() -> None:
    log = LeaderAndLog(settings=LeaderSettings(deletes_records=False))
    with pytest.raises(KafkaError) as caught:
        log.delete_records(0)
    assert caught.value.code is ErrorCode.policy_violation


def test_a_fetcher_whose_log_has_diverged_gets_the_offset_to_truncate_to() -> None:
    log = LeaderAndLog(log_end_offset=20)
    log.epochs.load([(1, 0), (3, 20)])
    log.append(batch(count=10))
    assert log.leader.diverging_epoch(-1, 99) is None
    assert log.leader.diverging_epoch(3, 30) is None
    assert log.leader.diverging_epoch(1, 20) is None
    assert log.leader.diverging_epoch(1, 25) == (1, 20)
    assert log.leader.diverging_epoch(2, 20) == (1, 20)
    with pytest.raises(KafkaError) as caught:
        log.leader.diverging_epoch(4, 20)
    assert caught.value.code is ErrorCode.offset_out_of_range
    log.delete_records(5)
    with pytest.raises(KafkaError) as caught:
        log.leader.diverging_epoch(1, 4)
    assert caught.value.code is ErrorCode.offset_out_of_range
