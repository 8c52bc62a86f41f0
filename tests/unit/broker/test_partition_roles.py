"""A hosted partition leads or follows as the image says, one role per leader epoch."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.list_offsets.v9.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.unit.broker.broker_bench import (
    Bench,
    fetch_request,
    fetched,
    on_broker,
    produce_request,
    until,
    values_in,
)
from tests.unit.broker.roles import (
    OTHER,
    change_partition,
    hosted_partition,
    lead_alone,
    lead_with_follower,
    register_other,
    step_down,
)

from ottla.broker.partition_flush import flush_partition
from ottla.core.controller.changes import changes_since
from ottla.core.partition.follower import PartitionFollower
from ottla.core.partition.leader import PartitionLeader
from ottla.core.partition.replica_selector import RACK_AWARE_SELECTOR
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

ONE_SECOND = timedelta(seconds=1)


def delete_records_request(offset: int, timeout: timedelta = ONE_SECOND) -> DeleteRecordsRequest:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name="journal", partitions=(wanted,)),), timeout=timeout
    )


def list_offsets_request(timestamp: int = -1, epoch: int = -1, replica_id: int = -1) -> ListOffsetsRequest:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=0,
        topics=(ListOffsetsTopic(name="journal", partitions=(wanted,)),),
    )


def epoch_request(epoch: int = -1) -> OffsetForLeaderEpochRequest:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0)
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=(OffsetForLeaderTopic(topic="journal", partitions=(wanted,)),)
    )


# -- leading and following


@on_broker()
async def test_a_leader_that_steps_down_follows_and_keeps_its_high_watermark(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    hosted = hosted_partition(bench)
    assert isinstance(hosted.role, PartitionLeader)
    step_down(bench)
    assert isinstance(hosted.role, PartitionFollower)
    assert (hosted.role.leader_id, hosted.role.leader_epoch, hosted.role.high_watermark) == (OTHER, 1, 2)
    assert not hosted.is_led
    lead_alone(bench)
    assert hosted_partition(bench) is hosted
    assert (hosted.leader.leader_epoch, hosted.leader.high_watermark) == (2, 2)
    assert (await bench.produce("journal", b"c")).base_offset == 2


@on_broker()
async def test_a_partition_without_a_leader_is_hosted_and_has_a_follower(bench: Bench) -> None:
    await bench.create("journal")
    change_partition(bench, leader=-1)
    role = hosted_partition(bench).role
    assert isinstance(role, PartitionFollower)
    assert role.leader_id == -1
    with pytest.raises(KafkaError) as rejected:
        bench.services.partitions.find_leader("journal", None, 0)
    assert rejected.value.code is ErrorCode.not_leader_or_follower
    assert "journal-0 has no leader in leader epoch 1" in rejected.value.message


@on_broker()
async def test_requests_that_need_the_leader_are_rejected_by_a_follower(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a")
    step_down(bench)
    expected = ErrorCode.not_leader_or_follower
    assert (await bench.produce("journal", b"x")).error_code is expected
    for request in (delete_records_request(1), list_offsets_request(), list_offsets_request(timestamp=5)):
        (answer,) = (await bench.ask(request)).topics[0].partitions
        assert answer.error_code is expected
    (answer,) = (await bench.ask(epoch_request())).topics[0].partitions
    assert answer.error_code is expected
    topic = TopicRequest(name="journal", partition_indexes=(0,))
    (answer,) = (await bench.ask(DescribeProducersRequest(topics=(topic,)))).topics[0].partitions
    assert answer.error_code is ErrorCode.none, "any replica describes producers"
    assert hosted_partition(bench).log.log_end_offset == 1


@on_broker()
async def test_a_follower_checks_the_clients_leader_epoch_before_it_names_the_leader(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    step_down(bench)
    for epoch, expected in (
        (0, ErrorCode.fenced_leader_epoch),
        (1, ErrorCode.not_leader_or_follower),
        (2, ErrorCode.unknown_leader_epoch),
    ):
        request = fetch_request(topic_id, fetched(current_leader_epoch=epoch))
        (answer,) = (await bench.ask(request)).responses[0].partitions
        # In the present epoch a consumer may read from a follower (KIP-392).
        assert answer.error_code is (ErrorCode.none if epoch == 1 else expected)
        (answer,) = (await bench.ask(list_offsets_request(epoch=epoch))).topics[0].partitions
        assert answer.error_code is expected
        (answer,) = (await bench.ask(epoch_request(epoch))).topics[0].partitions
        assert answer.error_code is expected


@on_broker()
async def test_the_error_names_the_leader(bench: Bench) -> None:
    await bench.create("journal")
    step_down(bench)
    with pytest.raises(KafkaError) as rejected:
        bench.services.partitions.find_leader("journal", None, 0)
    assert "journal-0 is led by broker 2 in leader epoch 1" in rejected.value.message


# -- changes within a leader epoch


@on_broker()
async def test_a_smaller_isr_commits_what_a_dead_follower_held_back(bench: Bench) -> None:
    await bench.create("journal")
    lead_with_follower(bench)
    leader = hosted_partition(bench).leader
    await asyncio.sleep(31)  # a follower that was caught up not long ago holds the high watermark back
    produce = asyncio.create_task(
        bench.new_client("other").request(produce_request("journal", bench.batch(b"b")))
    )
    await until(lambda: len(bench.services.delayed_operations) == 1)
    change_partition(bench, isr=(1,))
    assert (await asyncio.wait_for(produce, 1)).responses[0].partition_responses[
        0
    ].error_code is ErrorCode.none
    assert hosted_partition(bench).leader is leader, "an ISR change is no new leader epoch"
    assert leader.isr == (1,)


@on_broker()
async def test_an_older_image_never_wins(bench: Bench) -> None:
    await bench.create("journal")
    lead_with_follower(bench)
    hosted = hosted_partition(bench)
    leader = hosted.leader
    hosted.isr_committed((1,), (1, OTHER), 9, 0)  # the answer to a proposal came before the image
    change_partition(bench, isr=(1, OTHER), partition_epoch=8)
    assert (leader.isr, leader.partition_epoch) == ((1,), 9)
    change_partition(bench, leader=OTHER, leader_epoch=leader.leader_epoch - 1, partition_epoch=10)
    assert hosted.role is leader
    change_partition(bench, leader=1, leader_epoch=leader.leader_epoch, isr=(1, OTHER), partition_epoch=11)
    assert leader.isr == (1, OTHER)


@on_broker()
async def test_a_followers_partition_epoch_moves_forward_only(bench: Bench) -> None:
    await bench.create("journal")
    step_down(bench)
    role = hosted_partition(bench).role
    change_partition(bench, isr=(OTHER,), partition_epoch=20)
    change_partition(bench, isr=(1, OTHER), partition_epoch=19)
    assert hosted_partition(bench).role is role
    assert role.partition_epoch == 20


# -- reassignments


@on_broker()
async def test_a_partition_that_is_reassigned_away_is_deleted_here(bench: Bench) -> None:
    topic_id = await bench.create("journal", 2)
    await bench.produce("journal", b"a")
    lead_with_follower(bench)
    waiting = asyncio.create_task(bench.produce("journal", b"b"))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    change_partition(bench, leader=OTHER, replicas=(OTHER,), isr=(OTHER,))
    assert (await asyncio.wait_for(waiting, 1)).error_code is ErrorCode.not_leader_or_follower
    assert TopicPartition("journal", 0) not in bench.services.log_dirs.logs
    assert "journal-0" not in bench.disk.list_dir("/data")
    assert "journal-1" in bench.disk.list_dir("/data")
    (answer,) = (await bench.ask(fetch_request(topic_id, fetched()))).responses[0].partitions
    assert answer.error_code is ErrorCode.not_leader_or_follower
    with pytest.raises(KafkaError) as rejected:
        bench.services.partitions.find_replica("journal", None, 0)
    assert "broker 2 leads it" in rejected.value.message


@on_broker()
async def test_a_partition_that_is_reassigned_to_this_broker_is_opened_as_a_follower(bench: Bench) -> None:
    await bench.create("journal")
    change_partition(bench, leader=OTHER, replicas=(OTHER,), isr=(OTHER,))
    await bench.services.partitions.sync_deletions()  # as between any two images
    change_partition(bench, replicas=(OTHER, 1), isr=(OTHER,))
    role = hosted_partition(bench).role
    assert isinstance(role, PartitionFollower)
    assert (role.leader_id, role.high_watermark) == (OTHER, 0)
    change_partition(bench, leader=1, isr=(OTHER, 1))
    assert hosted_partition(bench).is_led


# -- the log of a follower


@on_broker()
async def test_retention_flush_and_checkpoints_work_on_a_followers_log(bench: Bench) -> None:
    await bench.create("journal", retention_ms="1000", segment_ms="500")
    await bench.produce("journal", b"old")
    await asyncio.sleep(0.6)
    await bench.produce("journal", b"rolls")
    step_down(bench)
    hosted = hosted_partition(bench)
    hosted.fetched_from_leader(2, 0)
    await asyncio.sleep(0.6)
    bench.broker.housekeeping.enforce_retention(bench.world.clock.now_ms())
    assert hosted.log.log_start_offset == 1
    await asyncio.sleep(6)  # replica.high.watermark.checkpoint.interval.ms
    await bench.broker.housekeeping.tick(bench.world.clock.now_ms())
    checkpoint = bench.disk.read_bytes("/data/replication-offset-checkpoint").decode()
    assert "journal 0 2" in checkpoint


@on_broker()
async def test_the_log_of_a_follower_is_compacted_up_to_what_is_committed(bench: Bench) -> None:
    await bench.create(
        "journal", cleanup_policy="compact", segment_ms="500", min_cleanable_dirty_ratio="0.01"
    )
    await bench.produce("journal", b"old")
    await asyncio.sleep(0.6)
    await bench.produce("journal", b"rolls")
    step_down(bench)
    await flush_partition(bench.services.env, hosted_partition(bench))
    ((hosted, cleanable),) = bench.broker.log_cleaner.cleanable_logs(bench.world.clock.now_ms())
    assert hosted is hosted_partition(bench)
    assert cleanable.dirty_ratio > 0


@on_broker()
async def test_a_follower_deletes_the_records_that_its_leader_has_deleted(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b", b"c")
    step_down(bench)
    hosted = hosted_partition(bench)
    hosted.fetched_from_leader(3, 2)
    assert hosted.log.log_start_offset == 2


@on_broker(started=False)
async def test_a_follower_opens_with_the_high_watermark_of_the_previous_run(bench: Bench) -> None:
    await bench.start()
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    step_down(bench)
    await bench.stop()
    await bench.start()
    assert hosted_partition(bench).role.high_watermark == 2
    await bench.stop()


# -- KIP-392


@on_broker(replica_selector_class=RACK_AWARE_SELECTOR)
async def test_a_consumer_is_sent_to_the_follower_in_its_rack(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    register_other(bench, rack="here")
    lead_with_follower(bench)
    follower = hosted_partition(bench).leader.replicas.followers[OTHER]
    follower.log_start_offset, follower.log_end_offset = 0, 2
    request = fetch_request(topic_id, fetched())
    (answer,) = (await bench.ask(replace(request, rack_id="here"))).responses[0].partitions
    assert (answer.error_code, answer.preferred_read_replica) == (ErrorCode.none, OTHER)
    assert not answer.records
    for rack in ("elsewhere", ""):
        (answer,) = (await bench.ask(replace(request, rack_id=rack))).responses[0].partitions
        assert answer.preferred_read_replica == -1
        assert answer.records


@on_broker()
async def test_a_consumer_reads_from_a_follower_what_it_knows_to_be_committed(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a")
    lead_with_follower(bench)
    await bench.produce("journal", b"b", acks=1)
    step_down(bench)
    (answer,) = (await bench.ask(fetch_request(topic_id, fetched()))).responses[0].partitions
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.none, 1)
    assert values_in(answer.records) == [b"a"]
    (answer,) = (await bench.ask(fetch_request(topic_id, fetched(1)))).responses[0].partitions
    assert (answer.error_code, bool(answer.records)) == (ErrorCode.none, False)


@on_broker()
async def test_a_consumer_whose_log_has_diverged_from_the_followers_gets_the_diverging_epoch(
    bench: Bench,
) -> None:
    """As from the leader. Both check it before they read."""
    topic_id = await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    hosted_partition(bench).leader.leader_epoch = 3
    await bench.produce("journal", b"c")

    async def answer(offset: int, epoch: int) -> Any:
        request = fetch_request(topic_id, fetched(offset, last_fetched_epoch=epoch))
        return (await bench.ask(request)).responses[0].partitions[0]

    for is_led in (True, False):
        if not is_led:
            change_partition(bench, leader=OTHER, leader_epoch=4)
        assert hosted_partition(bench).is_led is is_led
        diverged = await answer(3, 0)
        assert diverged.error_code is ErrorCode.none
        assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (0, 2)
        assert not diverged.records
        assert values_in((await answer(2, 0)).records) == [b"c"]
        assert (await answer(1, 9)).error_code is ErrorCode.offset_out_of_range


# -- KIP-951


@pytest.mark.parametrize("version", [15, 16, 17])
def test_a_fetch_of_an_old_epoch_from_a_follower_names_the_leader_and_its_address(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        topic_id = await bench.create("journal")
        register_other(bench)
        step_down(bench)
        response = await bench.ask(fetch_request(topic_id, fetched(current_leader_epoch=0)), version)
        (answer,) = response.responses[0].partitions
        assert answer.error_code is ErrorCode.fenced_leader_epoch
        if version >= 16:
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 1)
            assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
                (OTHER, "other.example", 9192)
            ]

    run()


@on_broker()
async def test_a_fetch_with_an_old_leader_epoch_gets_the_present_one(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    change_partition(bench, leader=1)
    response = await bench.ask(fetch_request(topic_id, fetched(current_leader_epoch=0)))
    (answer,) = response.responses[0].partitions
    assert answer.error_code is ErrorCode.fenced_leader_epoch
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 1)
    assert [node.node_id for node in response.node_endpoints] == [1]


@pytest.mark.parametrize("version", [9, 10, 12])
def test_a_produce_to_a_follower_names_the_leader_and_its_address(version: int) -> None:
    @on_broker()
    async def run(bench: Bench) -> None:
        await bench.create("journal")
        register_other(bench)
        step_down(bench)
        response = await bench.ask(produce_request("journal", bench.batch(b"a")), version)
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code is ErrorCode.not_leader_or_follower
        if version >= 10:
            assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (OTHER, 1)
            assert [(node.node_id, node.host, node.port) for node in response.node_endpoints] == [
                (OTHER, "other.example", 9192)
            ]

    run()


@on_broker()
async def test_a_produce_whose_leader_steps_down_names_the_next_one(bench: Bench) -> None:
    await bench.create("journal")
    register_other(bench)
    lead_with_follower(bench)
    waiting = asyncio.create_task(bench.ask(produce_request("journal", bench.batch(b"a"))))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    step_down(bench)
    response = await asyncio.wait_for(waiting, 1)
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code is ErrorCode.not_leader_or_follower
    assert answer.current_leader.leader_id == OTHER
    assert [node.node_id for node in response.node_endpoints] == [OTHER]


# -- many partitions


@pytest.mark.slow
@on_broker()
async def test_very_many_partitions_change_their_role_in_steps(bench: Bench) -> None:
    await bench.create("wide", 300)
    image = bench.services.metadata.image
    topic = image.topics["wide"]
    changed = topic._replace(
        partitions={
            index: part._replace(leader=OTHER, replicas=(1, OTHER), isr=(OTHER,), leader_epoch=1)
            for index, part in topic.partitions.items()
        }
    )
    new = replace(
        image,
        topics={**image.topics, "wide": changed},
        topics_by_id={**image.topics_by_id, changed.topic_id: changed},
    )
    work = bench.services.partitions.apply(changes_since(image, new), new)
    assert work is not None
    await work
    assert not any(hosted.is_led for hosted in bench.services.partitions)


@pytest.mark.slow
@on_broker(started=False)
async def test_very_many_partitions_are_opened_in_steps_at_a_start(bench: Bench) -> None:
    await bench.start()
    await bench.create("wide", 300)
    await bench.produce("wide", b"a", partition=299)
    for end in (bench.stop, bench.kill):
        await end()
        await bench.start()
        assert sum(1 for _ in bench.services.partitions) == 300
        assert hosted_partition(bench, "wide", 299).leader.high_watermark == 1
    await bench.stop()


@pytest.mark.slow
@on_broker(started=False)
async def test_a_stop_while_very_many_partitions_are_opened_ends_between_two_steps(bench: Bench) -> None:
    await bench.start()
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    creation = asyncio.create_task(bench.create("wide", 2000))
    await until(lambda: any(True for _ in bench.services.partitions))
    await bench.stop()
    opened = sum(1 for _ in bench.services.partitions)
    assert opened < 2000
    creation.cancel()
    await asyncio.gather(creation, return_exceptions=True)
    assert errors == []
    await bench.start()
    assert sum(1 for _ in bench.services.partitions) == 2000
    await bench.stop()


@on_broker()
async def test_the_followers_of_a_fenced_broker_are_left_out_in_steps(
    bench: Bench,
) -> None:
    await bench.create("wide", 250)
    register_other(bench)
    for index in range(250):
        lead_with_follower(bench, "wide", index)
    image = bench.services.metadata.image
    left_out: list[int] = []
    for index in range(250):
        hosted = hosted_partition(bench, "wide", index)
        hosted.follower_unavailable = lambda broker_id, now_ms: left_out.append(broker_id)  # type: ignore[method-assign]
    fenced = {**image.brokers, OTHER: image.brokers[OTHER]._replace(fenced=True)}
    changed = replace(image, brokers=fenced, offset=image.offset + 1)
    work = bench.services.partitions.apply(changes_since(image, changed), changed)
    assert work is not None
    assert left_out == []
    await work
    assert left_out == [OTHER] * 250
