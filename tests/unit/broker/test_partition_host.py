"""The partition host applies the metadata image: leaders, epochs, deletions, high watermarks of the previous run."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from tests.unit.broker.broker_bench import Bench, fetch_request, fetched, on_broker, until

from ottla.core.controller.changes import MetadataChanges, PartitionChange, TopicChange
from ottla.core.controller.image import MetadataImage, PartitionImage, TopicImage
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition


def changed(bench: Bench, partition: PartitionImage) -> MetadataChanges:
    """Partition 0 of the topic is `partition` now."""
    topic = bench.services.metadata.image.topics["journal"]
    change = TopicChange(topic, (PartitionChange(0, topic.partitions[0], partition),))
    return MetadataChanges((), (), (change,), (), (), False)


@on_broker()
async def test_a_new_leader_epoch_keeps_the_high_watermark_and_is_found_in_the_log(bench: Bench) -> None:
    await bench.create("journal")
    await bench.produce("journal", b"a", b"b")
    partition = bench.services.metadata.image.topics["journal"].partitions[0]
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    before = hosted.leader
    bench.services.partitions.apply(
        changed(bench, partition._replace(leader_epoch=5)), bench.services.metadata.image
    )
    assert bench.services.partitions.find_replica("journal", None, 0) is hosted
    assert hosted.leader is not before
    assert (hosted.leader.leader_epoch, hosted.leader.high_watermark) == (5, 2)
    await bench.produce("journal", b"c")
    assert hosted.log.epochs.entries() == [(0, 0), (5, 2)]


@on_broker()
async def test_a_new_leader_epoch_completes_delayed_fetches(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    request = fetch_request(topic_id, fetched(current_leader_epoch=0), max_wait=timedelta(seconds=9))
    poll = asyncio.create_task(bench.new_client("reader").request(request))
    await until(lambda: len(bench.services.delayed_operations) == 1)
    partition = bench.services.metadata.image.topics["journal"].partitions[0]
    bench.services.partitions.apply(
        changed(bench, partition._replace(leader_epoch=1)), bench.services.metadata.image
    )
    response = await asyncio.wait_for(poll, 1)
    assert response.responses[0].partitions[0].error_code is ErrorCode.fenced_leader_epoch


@on_broker()
async def test_partitions_that_are_not_here_are_errors_with_the_reason(bench: Bench) -> None:
    topic_id = await bench.create("journal")
    host = bench.services.partitions

    def refusal(name: str | None, wanted: UUID | None, index: int) -> ErrorCode:
        with pytest.raises(KafkaError) as rejected:
            host.find_replica(name, wanted, index)
        assert rejected.value.message
        return rejected.value.code

    assert refusal("nobody", None, 0) is ErrorCode.unknown_topic_or_partition
    assert refusal("journal", None, 1) is ErrorCode.unknown_topic_or_partition
    assert refusal(None, topic_id, 1) is ErrorCode.unknown_topic_or_partition
    assert refusal(None, UUID(int=3), 0) is ErrorCode.unknown_topic_id
    assert refusal(None, None, 0) is ErrorCode.unknown_topic_id


@on_broker()
async def test_a_partition_of_another_broker_is_not_hosted(bench: Bench) -> None:
    await bench.create("journal")
    image = bench.services.metadata.image
    elsewhere = image.topics["journal"].partitions[0]._replace(leader=2, replicas=(2,), isr=(2,))
    topic = TopicImage(name="other", topic_id=UUID(int=8), partitions={0: elsewhere})
    with_other = replace(
        image,
        topics={**image.topics, "other": topic},
        topics_by_id={**image.topics_by_id, topic.topic_id: topic},
    )
    bench.services.partitions.apply(MetadataChanges((topic,), (), (), (), (), False), with_other)
    with pytest.raises(KafkaError) as rejected:
        bench.services.partitions.find_replica("other", None, 0)
    assert rejected.value.code is ErrorCode.not_leader_or_follower
    bench.services.partitions.apply(MetadataChanges((), (topic,), (), (), (), False), image)


@on_broker(started=False)
async def test_a_topic_that_cannot_be_deleted_does_not_delay_the_others(bench: Bench) -> None:
    bench.config["metadata.log.dir"] = "/meta"
    bench.disk.make_dirs("/meta")
    await bench.start()
    for name in ("a", "b"):
        await bench.create(name)
    bench.disk.fail("/data", operations=frozenset({"rename"}))
    wanted = tuple(DeleteTopicState(name=name, topic_id=None) for name in ("a", "b"))
    response = await bench.ask(DeleteTopicsRequest(topics=wanted, timeout=timedelta(seconds=1)))
    assert [result.error_code for result in response.responses] == [ErrorCode.none, ErrorCode.none]
    assert not bench.services.metadata.image.topics
    assert (await bench.produce("a", b"x")).error_code is ErrorCode.unknown_topic_or_partition
    await bench.stop()


@on_broker()
async def test_a_deletion_is_durable_before_a_partition_of_that_name_in_the_same_image_opens(
    bench: Bench,
) -> None:
    """A broker that is behind gets both at once. The sync must not block the event loop."""
    await bench.create("journal")
    await bench.produce("journal", b"old")
    image = bench.services.metadata.image
    old = image.topics["journal"]
    new = old._replace(topic_id=UUID(int=8))
    later = replace(image, topics={"journal": new}, topics_by_id={new.topic_id: new})
    host, log_dirs = bench.services.partitions, bench.services.log_dirs
    opening = host.apply(MetadataChanges((new,), (old,), (), (), (), False), later)
    assert opening is not None
    assert TopicPartition("journal", 0) not in log_dirs.logs
    with pytest.raises(KafkaError) as rejected:
        host.find_replica("journal", None, 0)
    assert rejected.value.code is ErrorCode.not_leader_or_follower
    await opening
    assert not host.has_unsynced_deletions
    hosted = host.find_replica("journal", None, 0)
    assert (hosted.topic_id, hosted.log.log_end_offset) == (new.topic_id, 0)


def number_hosted(bench: Bench, topic: str) -> int:
    return sum(hosted.topic_partition.topic == topic for hosted in bench.services.partitions)


@pytest.mark.slow
@on_broker()
async def test_very_many_partitions_are_opened_in_steps_and_clients_retry_meanwhile(
    bench: Bench,
) -> None:
    seen: list[tuple[int, KafkaError]] = []

    def look(old: MetadataImage, new: MetadataImage) -> None:
        with pytest.raises(KafkaError) as rejected:
            bench.services.partitions.find_replica("wide", None, 1999)
        seen.append((number_hosted(bench, "wide"), rejected.value))

    bench.services.quorum.subscribe(look)
    topic_id = await bench.create("wide", 2000)
    ((hosted, rejected),) = seen
    assert hosted == 0
    assert rejected.code is ErrorCode.not_leader_or_follower
    assert "is being opened; try again" in rejected.message
    assert number_hosted(bench, "wide") == 2000
    assert bench.services.partitions.find_replica("wide", None, 1999).log.topic_id == topic_id


@pytest.mark.slow
@on_broker()
async def test_very_many_partitions_are_deleted_in_steps_and_their_name_can_be_used_again(
    bench: Bench,
) -> None:
    await bench.create("wide", 2000)
    seen: list[tuple[int, int]] = []
    bench.services.quorum.subscribe(
        lambda old, new: seen.append((number_hosted(bench, "wide"), len(bench.services.log_dirs.logs)))
    )
    state = DeleteTopicState(name="wide", topic_id=None)
    deletion = asyncio.create_task(
        bench.ask(DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=1)))
    )
    await until(lambda: "wide" not in bench.services.metadata.image.topics)
    again = await bench.create("wide", 30)
    assert (await deletion).responses[0].error_code is ErrorCode.none
    assert seen[0] == (0, 2000)
    assert {hosted.log.topic_id for hosted in bench.services.partitions} == {again}
    assert len(bench.services.log_dirs.logs) == 30


@pytest.mark.slow
@on_broker(started=False)
async def test_very_many_partitions_whose_disk_fails_meanwhile_are_deleted_without_an_error(
    bench: Bench,
) -> None:
    bench.config["metadata.log.dir"] = "/meta"
    bench.disk.make_dirs("/meta")
    await bench.start()
    await bench.create("wide", 2000)
    bench.disk.fail("/data", operations=frozenset({"rename"}))
    state = DeleteTopicState(name="wide", topic_id=None)
    response = await bench.ask(DeleteTopicsRequest(topics=(state,), timeout=timedelta(seconds=1)))
    assert response.responses[0].error_code is ErrorCode.none
    assert not bench.services.metadata.image.topics
    await bench.stop()


@pytest.mark.slow
@on_broker(started=False)
async def test_a_kill_while_very_many_partitions_are_opened_raises_no_error(bench: Bench) -> None:
    await bench.start()
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    creation = asyncio.create_task(bench.create("wide", 2000))
    await until(lambda: "wide" in bench.services.metadata.image.topics)
    assert number_hosted(bench, "wide") < 2000
    await bench.kill()
    creation.cancel()
    await asyncio.gather(creation, return_exceptions=True)
    assert errors == []
    await bench.start()
    assert number_hosted(bench, "wide") == 2000
    await bench.stop()
