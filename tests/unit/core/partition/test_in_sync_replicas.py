"""In-sync replicas, the high watermark, and when a replica joins or leaves the ISR."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.core.partition.batches import batch

from ottla.core.partition.effects import Effects
from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.leader import AppendPlan, IsrProposal, LeaderSettings, PartitionLeader
from ottla.core.partition.log_offsets import MutableLogOffsets
from ottla.core.partition.producers import ProducerStateTable
from ottla.model.errors import ErrorCode, KafkaError

LAG_MAX_MS = 30_000


class LeaderAndLog(PartitionLeader):
    """A leader, and the offsets that the log moves."""

    log: MutableLogOffsets


def leader_of(
    *, isr: tuple[int, ...] = (1, 2, 3), min_isr: int = 1, log_end_offset: int = 0, now_ms: int = 0
) -> LeaderAndLog:
    log = MutableLogOffsets(0, log_end_offset)
    leader = LeaderAndLog(
        log,
        ProducerStateTable(),
        LeaderEpochCache(),
        leader_epoch=5,
        high_watermark=0,
        local_id=1,
        replica_ids=[1, 2, 3],
        isr=isr,
        settings=LeaderSettings(min_insync_replicas=min_isr, replica_lag_time_max_ms=LAG_MAX_MS),
        now_ms=now_ms,
    )
    leader.log = log
    return leader


def append(leader: LeaderAndLog, count: int, now_ms: int = 0) -> Effects:
    plan = leader.plan_append([batch(count=count)], now_ms, required_acks=1)
    leader.log.end = plan.last_offset + 1
    return leader.on_appended(plan, now_ms)


def fetch(leader: PartitionLeader, replica_id: int, offset: int, now_ms: int = 0) -> Effects:
    return leader.on_fetch(replica_id, offset, 5, now_ms, log_start_offset=0)


def test_the_high_watermark_is_the_smallest_log_end_offset_of_the_isr() -> None:
    leader = leader_of()
    append(leader, 10)
    assert leader.high_watermark == 0
    fetch(leader, 2, 10)
    assert leader.high_watermark == 0
    assert fetch(leader, 3, 4).high_watermark_moved
    assert leader.high_watermark == 4
    assert not fetch(leader, 3, 4).high_watermark_moved
    fetch(leader, 3, 10)
    assert leader.high_watermark == 10


def test_the_high_watermark_never_moves_back() -> None:
    leader = leader_of()
    append(leader, 10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    fetch(leader, 3, 2)
    assert leader.high_watermark == 10


def test_a_follower_that_is_not_in_the_isr_does_not_hold_the_high_watermark_back() -> None:
    leader = leader_of(isr=(1, 2), now_ms=100_000)
    append(leader, 10, 100_000)
    fetch(leader, 2, 10, 100_000)
    assert leader.high_watermark == 10


def test_the_high_watermark_waits_for_a_follower_that_is_caught_up_and_about_to_join() -> None:
    leader = leader_of(isr=(1, 2), now_ms=100_000)
    assert fetch(leader, 3, 0, 100_000).proposed_isr == (1, 2, 3)
    leader.replicas.withdraw_proposal()
    append(leader, 10, 100_000)
    fetch(leader, 2, 10, 100_000)
    assert leader.high_watermark == 0
    fetch(leader, 3, 10, 100_001)
    assert leader.high_watermark == 10


def test_the_high_watermark_does_not_wait_for_a_follower_that_the_controller_has_removed() -> None:
    leader = leader_of(now_ms=100_000)
    fetch(leader, 2, 0, 100_000)
    fetch(leader, 3, 0, 100_000)
    append(leader, 10, 100_001)
    assert fetch(leader, 2, 10, 100_002) == Effects()
    assert leader.on_isr_committed((1, 2), 1, 100_003).high_watermark_moved
    assert leader.high_watermark == 10
    append(leader, 10, 100_004)
    fetch(leader, 2, 20, 100_005)
    assert leader.high_watermark == 20


def test_the_high_watermark_does_not_wait_for_a_follower_that_shuts_down_and_still_fetches() -> None:
    leader = leader_of(isr=(1, 2), now_ms=100_000)
    leader.on_fetch(3, 0, 5, 100_000, log_start_offset=0, may_join_isr=False)
    append(leader, 10, 100_001)
    fetch(leader, 2, 10, 100_002)
    assert leader.high_watermark == 10


def test_the_high_watermark_does_not_wait_for_a_follower_that_is_fenced_before_it_joins() -> None:
    leader = leader_of(isr=(1, 2), now_ms=100_000)
    fetch(leader, 3, 0, 100_000)
    leader.replicas.withdraw_proposal()
    append(leader, 10, 100_001)
    fetch(leader, 2, 10, 100_002)
    assert leader.high_watermark == 0
    assert leader.on_follower_unavailable(3, 100_003).high_watermark_moved
    assert leader.high_watermark == 10
    assert leader.on_follower_unavailable(3, 100_004) == Effects()
    assert leader.on_follower_unavailable(9, 100_004) == Effects()


def test_a_follower_joins_when_it_reaches_the_high_watermark_and_the_leaders_epoch() -> None:
    leader = leader_of(isr=(1,), log_end_offset=20, now_ms=100_000)
    assert leader.high_watermark == 20
    assert fetch(leader, 2, 19, 100_000).proposed_isr is None
    assert fetch(leader, 2, 20, 100_000).proposed_isr == (1, 2)


def test_a_follower_behind_the_start_of_the_leaders_epoch_does_not_join() -> None:
    leader = leader_of(isr=(1, 2), log_end_offset=20)
    assert leader.high_watermark == 0  # replica 2 has not fetched yet
    assert fetch(leader, 3, 19).proposed_isr is None
    assert fetch(leader, 3, 20).proposed_isr == (1, 2, 3)


def test_only_one_isr_is_proposed_at_a_time() -> None:
    leader = leader_of(isr=(1,))
    assert fetch(leader, 2, 0).proposed_isr == (1, 2)
    assert fetch(leader, 3, 0).proposed_isr is None
    leader.on_isr_committed((1, 2), leader.partition_epoch + 1, 0)
    assert leader.isr == (1, 2)
    assert fetch(leader, 3, 0).proposed_isr == (1, 2, 3)


def test_a_proposed_replica_counts_for_the_high_watermark_before_the_controller_agrees() -> None:
    leader = leader_of(isr=(1,))
    fetch(leader, 2, 0)
    append(leader, 5, 2 * LAG_MAX_MS)
    assert leader.replicas.maximal == (1, 2)
    assert leader.high_watermark == 0


def test_a_proposal_to_shrink_does_not_move_the_high_watermark_until_the_controller_agrees() -> None:
    leader = leader_of()
    append(leader, 10)
    fetch(leader, 2, 10)
    assert leader.tick(LAG_MAX_MS).proposed_isr is None
    fetch(leader, 2, 10, LAG_MAX_MS + 1)
    assert leader.tick(LAG_MAX_MS + 1).proposed_isr == (1, 2)
    assert leader.high_watermark == 0
    assert leader.on_isr_committed((1, 2), leader.partition_epoch + 1, LAG_MAX_MS + 1).high_watermark_moved
    assert leader.high_watermark == 10


def test_a_follower_with_the_whole_log_stays_in_sync_without_fetching() -> None:
    leader = leader_of()
    append(leader, 10)
    fetch(leader, 2, 10)
    fetch(leader, 3, 10)
    assert leader.tick(100 * LAG_MAX_MS).proposed_isr is None


def test_a_follower_that_always_has_what_the_leader_had_at_its_last_fetch_stays_in_sync() -> None:
    """While the leader appends all the time, a follower never fetches from the log end."""
    leader = leader_of(isr=(1, 2))
    fetched = 0
    for now_ms in range(0, 5 * LAG_MAX_MS, 1000):
        fetch(leader, 2, fetched, now_ms)
        fetched = leader.log.end
        append(leader, 1, now_ms)
        assert leader.tick(now_ms).proposed_isr is None


def test_a_follower_that_fetches_but_falls_further_and_further_behind_leaves_the_isr() -> None:
    leader = leader_of(isr=(1, 2))
    proposals = []
    for step in range(40):
        fetch(leader, 2, step, step * 1000)
        append(leader, 10, step * 1000)
        proposals.append(leader.tick(step * 1000).proposed_isr)
    assert (1,) in proposals


def test_acks_all_is_rejected_when_the_isr_is_smaller_than_min_insync_replicas() -> None:
    leader = leader_of(isr=(1,), min_isr=2)
    with pytest.raises(KafkaError) as caught:
        leader.plan_append([batch()], 0, required_acks=-1)
    assert caught.value.code is ErrorCode.not_enough_replicas
    assert "[1]" in caught.value.message
    leader.plan_append([batch()], 0, required_acks=1)


def test_min_insync_replicas_above_the_replication_factor_means_all_replicas() -> None:
    leader = leader_of(isr=(1, 2, 3), min_isr=7)
    leader.plan_append([batch()], 0, required_acks=-1)
    leader.on_isr_committed((1, 2), leader.partition_epoch + 1, 0)
    with pytest.raises(KafkaError):
        leader.plan_append([batch()], 0, required_acks=-1)


def test_the_high_watermark_does_not_move_under_min_insync_replicas() -> None:
    leader = leader_of(isr=(1,), min_isr=2)
    append(leader, 5)
    assert leader.high_watermark == 0


def test_a_produce_whose_isr_shrank_after_the_append_gets_not_enough_replicas_after_append() -> None:
    leader = leader_of(isr=(1, 2), min_isr=2, now_ms=100_000)
    append(leader, 5, 100_000)
    fetch(leader, 2, 5, 100_000)
    assert leader.is_acknowledged(5)
    leader.on_isr_committed((1,), leader.partition_epoch + 1, 100_000)
    with pytest.raises(KafkaError) as caught:
        leader.is_acknowledged(5)
    assert caught.value.code is ErrorCode.not_enough_replicas_after_append


def test_a_fetch_of_a_broker_that_is_not_a_replica_is_rejected() -> None:
    leader = leader_of()
    with pytest.raises(KafkaError) as caught:
        leader.on_fetch(9, 0, 5, 0, log_start_offset=0)
    assert caught.value.code is ErrorCode.unknown_leader_epoch
    with pytest.raises(KafkaError) as caught:
        leader.on_fetch(9, 0, -1, 0, log_start_offset=0)
    assert caught.value.code is ErrorCode.not_leader_or_follower


def test_a_fetch_with_another_leader_epoch_moves_no_offset() -> None:
    leader = leader_of()
    append(leader, 10)
    with pytest.raises(KafkaError) as caught:
        leader.on_fetch(2, 10, 4, 0, log_start_offset=0)
    assert caught.value.code is ErrorCode.fenced_leader_epoch
    assert leader.replicas.followers[2].log_end_offset == -1


def test_followers_may_read_to_the_log_end_and_consumers_to_the_high_watermark() -> None:
    leader = leader_of()
    append(leader, 10)
    assert leader.fetch_limit(0, is_follower=True) == 10
    assert leader.fetch_limit(0, is_follower=False) == 0


def test_the_low_watermark_is_the_smallest_log_start_offset_of_all_replicas() -> None:
    leader = leader_of(isr=(1, 2, 3))
    append(leader, 10)
    for replica_id in (2, 3):
        leader.on_fetch(replica_id, 10, 5, 0, log_start_offset=0)
    leader.log.start = leader.check_delete_records(6)
    moved = leader.on_log_start_moved(0)
    assert moved.log_start_moved
    assert not moved.low_watermark_moved
    assert leader.low_watermark == 0
    # Broker 3 may be dead: then the low watermark of those that are alive has moved.
    assert leader.on_fetch(2, 10, 5, 0, log_start_offset=6).low_watermark_moved
    assert leader.low_watermark == 0
    assert leader.low_watermark_among(lambda replica_id: replica_id != 3) == 6
    assert not leader.on_fetch(2, 10, 5, 0, log_start_offset=6).low_watermark_moved
    assert leader.on_fetch(3, 10, 5, 0, log_start_offset=6).low_watermark_moved
    assert leader.low_watermark == 6


def test_the_low_watermark_may_move_when_a_follower_that_holds_it_back_is_unavailable_or_removed() -> None:
    leader = leader_of(isr=(1, 2, 3))
    append(leader, 10)
    for replica_id in (2, 3):
        leader.on_fetch(replica_id, 10, 5, 0, log_start_offset=0)
    assert not leader.on_follower_unavailable(2, 0).low_watermark_moved
    leader.log.start = leader.check_delete_records(6)
    leader.on_log_start_moved(0)
    assert leader.on_follower_unavailable(3, 0).low_watermark_moved
    leader.on_fetch(2, 10, 5, 0, log_start_offset=6)
    assert not leader.on_follower_unavailable(2, 0).low_watermark_moved
    assert not leader.on_isr_committed((1,), 1, 0, replica_ids=[1, 3]).low_watermark_moved
    assert leader.on_isr_committed((1,), 2, 0, replica_ids=[1]).low_watermark_moved


events = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("fetch"), st.integers(2, 3), st.integers(0, 8)),
        st.tuples(st.just("wait"), st.integers(1, 20_000), st.just(0)),
        st.tuples(st.just("response"), st.integers(0, 1), st.just(0)),
    ),
    max_size=50,
)


@examples(150)
@given(script=events)
def test_records_below_the_high_watermark_are_on_every_replica_of_the_committed_isr(
    script: list[tuple[str, int, int]],
) -> None:
    leader = leader_of()
    now_ms = 0
    fetched = {2: 0, 3: 0}
    pending: tuple[int, ...] | None = None
    committed_before = 0
    for action, number, step in script:
        effects = Effects()
        if action == "append":
            effects = append(leader, number, now_ms)
        elif action == "fetch":
            fetched[number] = min(fetched[number] + step, leader.log.end)
            effects = fetch(leader, number, fetched[number], now_ms)
        elif action == "wait":
            now_ms += number
            effects = leader.tick(now_ms)
        elif pending is not None:
            if number:
                leader.on_isr_committed(pending, leader.partition_epoch + 1, now_ms)
            else:
                leader.replicas.withdraw_proposal()
            pending = None
        pending = effects.proposed_isr or pending
        assert leader.high_watermark >= committed_before
        committed_before = leader.high_watermark
        for replica_id in leader.isr:
            if replica_id != 1:
                assert fetched[replica_id] >= leader.high_watermark


# -- decisions of the controller within a leader epoch


def test_an_older_decision_about_the_isr_never_wins() -> None:
    leader = leader_of()
    append(leader, 10)
    assert leader.on_isr_committed((1, 2), 3, 0) == Effects(isr_changed=True)
    assert not leader.on_isr_committed((1,), 3, 0).high_watermark_moved
    assert not leader.on_isr_committed((1,), 2, 0).high_watermark_moved
    assert (leader.isr, leader.partition_epoch, leader.high_watermark) == ((1, 2), 3, 0)
    assert leader.on_isr_committed((1,), 4, 100_000).high_watermark_moved
    assert leader.high_watermark == 10


def test_a_follower_is_caught_up_until_the_last_of_its_idle_fetches() -> None:
    leader = leader_of(isr=(1, 2))
    fetch(leader, 2, 0)
    leader.on_idle_fetches(2, 50_000)
    append(leader, 10)
    assert leader.tick(80_000).proposed_isr is None
    assert leader.tick(80_001).proposed_isr == (1,)


def test_idle_fetches_say_nothing_of_a_follower_that_has_not_fetched_from_this_leader() -> None:
    leader = leader_of(isr=(1, 2))
    leader.on_idle_fetches(2, 50_000)
    leader.on_idle_fetches(9, 50_000)
    append(leader, 10)
    assert leader.tick(50_001).proposed_isr == (1,)


def test_a_late_decision_does_not_withdraw_a_proposal() -> None:
    leader = leader_of(isr=(1, 2))
    leader.on_isr_committed((1, 2), 3, 0)
    fetch(leader, 3, 0)
    leader.on_isr_committed((1, 2), 2, 0)
    assert leader.replicas.proposed == (1, 2, 3)


def test_a_reassignment_adds_and_removes_followers_and_keeps_the_progress_of_the_others() -> None:
    leader = leader_of(isr=(1, 2))
    append(leader, 10)
    fetch(leader, 2, 7)
    leader.on_isr_committed((1, 2), 1, 0, replica_ids=[1, 2, 4])
    assert list(leader.replicas.followers) == [2, 4]
    assert leader.replicas.followers[2].log_end_offset == 7
    assert fetch(leader, 4, 10).proposed_isr == (1, 2, 4)
    with pytest.raises(KafkaError):
        fetch(leader, 3, 10)


def test_the_removal_of_a_follower_may_move_the_low_watermark() -> None:
    leader = leader_of()
    append(leader, 10)
    leader.log.start = 5
    leader.on_fetch(2, 10, 5, 0, log_start_offset=5)
    assert leader.low_watermark == -1
    assert leader.on_isr_committed((1, 2), 1, 0, replica_ids=[1, 2]).low_watermark_moved
    assert leader.low_watermark == 5


def test_a_proposal_has_the_epochs_of_the_partition_and_of_the_brokers() -> None:
    leader = leader_of(isr=(1, 2))
    leader.on_isr_committed((1, 2), 8, 0)
    assert leader.isr_proposal is None
    leader.on_fetch(2, 0, 5, 0, log_start_offset=0, replica_epoch=70, broker_epoch=70)
    leader.on_fetch(3, 0, 5, 0, log_start_offset=0, replica_epoch=90, broker_epoch=90)
    assert leader.isr_proposal == IsrProposal(5, 8, ((1, -1), (2, 70), (3, 90)))


# -- broker epochs (KIP-903)


def test_a_fetch_of_an_earlier_registration_is_rejected_and_not_counted() -> None:
    leader = leader_of()
    append(leader, 10)
    with pytest.raises(KafkaError) as rejected:
        leader.on_fetch(2, 10, 5, 0, log_start_offset=0, replica_epoch=6, broker_epoch=7)
    assert rejected.value.code is ErrorCode.not_leader_or_follower
    assert leader.replicas.followers[2].log_end_offset == -1


@pytest.mark.parametrize(
    ("replica_epoch", "broker_epoch", "may_join_isr", "joins"),
    [
        (7, 7, True, True),
        (-1, 7, True, True),  # an old Fetch version
        (8, 7, True, False),  # the image here is behind
        (7, None, True, False),  # fenced, or not registered as far as is known here
        (7, 7, False, False),  # in controlled shutdown
    ],
)
def test_only_a_follower_in_its_present_registration_joins_the_isr(
    replica_epoch: int, broker_epoch: int | None, may_join_isr: bool, joins: bool
) -> None:
    leader = leader_of(isr=(1, 2))
    effects = leader.on_fetch(
        3, 0, 5, 0,
        log_start_offset=0, replica_epoch=replica_epoch, broker_epoch=broker_epoch, may_join_isr=may_join_isr,
    )  # fmt: skip
    assert effects.proposed_isr == ((1, 2, 3) if joins else None)
    assert leader.replicas.followers[3].log_end_offset == 0


# -- a new leader


def test_offsets_are_not_available_until_the_high_watermark_reaches_the_start_of_the_epoch() -> None:
    leader = leader_of(log_end_offset=10)
    with pytest.raises(KafkaError) as rejected:
        leader.check_offsets_available()
    assert rejected.value.code is ErrorCode.offset_not_available
    for replica_id in (2, 3):
        fetch(leader, replica_id, 10)
    leader.check_offsets_available()
    append(leader, 5)
    leader.check_offsets_available()


def test_a_new_leader_waits_for_the_flush_of_records_that_it_took_over() -> None:
    leader = PartitionLeader(
        MutableLogOffsets(0, 10), ProducerStateTable(), LeaderEpochCache(),
        leader_epoch=5, high_watermark=4, local_id=1, replica_ids=[1], isr=[1],
        settings=LeaderSettings(), now_ms=0, unflushed_from=6,
    )  # fmt: skip
    assert leader.high_watermark == 6
    assert leader.on_flushed(10, 0).high_watermark_moved
    assert leader.high_watermark == 10


def append_once(leader: LeaderAndLog, now_ms: int) -> AppendPlan:
    """A batch of an idempotent producer, or its retry."""
    header = batch(count=1, producer_id=7, sequence=0)
    plan = leader.plan_append([header], now_ms, required_acks=1)
    if not plan.is_duplicate:
        leader.log.end = plan.last_offset + 1
        leader._producers.update(plan.batches[0].header)
    leader.on_appended(plan, now_ms)
    return plan


def waiting_for_a_fenced_follower() -> LeaderAndLog:
    """Follower 2 was about to join the ISR (1) when a record came; then its broker was fenced."""
    leader = leader_of(isr=(1,))
    assert fetch(leader, 2, 0).proposed_isr == (1, 2)
    append_once(leader, 1)
    leader.on_follower_unavailable(2, 2)
    assert leader.high_watermark == 0  # the controller may have added it
    return leader


def test_records_do_not_wait_for_a_replica_that_the_controller_has_rejected() -> None:
    leader = waiting_for_a_fenced_follower()
    assert leader.withdraw_isr_proposal(3).high_watermark_moved
    assert leader.high_watermark == 1


def test_the_retry_of_a_batch_commits_it_if_all_in_sync_replicas_have_it() -> None:
    leader = waiting_for_a_fenced_follower()
    leader.replicas.withdraw_proposal()
    assert append_once(leader, 3).is_duplicate
    assert leader.high_watermark == 1


def test_records_do_not_wait_longer_than_the_lag_time_for_a_follower_outside_of_the_isr() -> None:
    leader = leader_of(isr=(1,))
    fetch(leader, 2, 0)
    leader.replicas.withdraw_proposal()
    append_once(leader, 1)
    assert not leader.tick(LAG_MAX_MS).high_watermark_moved
    assert leader.tick(LAG_MAX_MS + 1).high_watermark_moved
    assert leader.high_watermark == 1


def test_a_smaller_min_insync_replicas_commits_what_the_isr_has() -> None:
    leader = leader_of(isr=(1, 2), min_isr=2)
    append_once(leader, 1)
    leader.on_isr_committed((1,), 1, 2)
    assert leader.high_watermark == 0
    assert leader.configure(replace(leader.settings, min_insync_replicas=1), 3).high_watermark_moved
    assert leader.high_watermark == 1
