"""A request may wait for other work before its delayed operation is watched. A leadership may end in that time."""

from datetime import timedelta
from typing import Any

from kio.schema.delete_records.v2.request import DeleteRecordsRequest
from kio.schema.produce.v12.request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.roles import OTHER, change_partition, hosted_partition, step_down

from ottla.broker import hosted_partition as hosted_partition_module
from ottla.broker.delayed_delete_records import PartitionDeletion
from ottla.broker.handlers.k21_delete_records import _respond_when_deleted
from ottla.broker.handlers.k27_write_txn_markers import _Asked, _Writes
from ottla.broker.promise import Promise
from ottla.core.partition.leader import TransactionMarker
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

JOURNAL = TopicPartition("journal", 0)


async def lead_with_a_follower(bench: Bench, partitions: int = 1) -> None:
    """The follower never fetches, so nothing is committed."""
    await bench.create("journal", partitions, ottla_record_validation="full")
    for index in range(partitions):
        change_partition(bench, index=index, leader=1, replicas=(1, OTHER), isr=(1, OTHER))


def result_of(response: Any) -> Any:
    assert isinstance(response, Promise)
    assert response.done, "it waits for its timeout"
    return response.value


@on_broker()
async def test_a_leadership_that_ends_while_other_records_are_examined_fails_the_produce(
    bench: Bench,
) -> None:
    await lead_with_a_follower(bench, 2)
    thread = bench.services.record_thread
    run = thread.run

    async def step_down_and_run(work: Any) -> Any:
        result = await run(work)
        step_down(bench)
        step_down(bench, index=1)
        return result

    thread.run = step_down_and_run  # type: ignore[method-assign]
    batches = bench.batch(b"short"), bench.batch(*[b"v"] * (hosted_partition_module._INLINE_RECORDS_MAX + 1))
    request = ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout=timedelta(seconds=1000),
        topic_data=(
            TopicProduceData(
                name="journal",
                partition_data=tuple(
                    PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)
                ),
            ),
        ),
    )
    first, _ = (await bench.ask(request)).responses[0].partition_responses  # before the client's timeout
    assert first.error_code is ErrorCode.not_leader_or_follower


@on_broker()
async def test_a_leadership_that_ends_before_the_last_partition_fails_the_deletion(bench: Bench) -> None:
    await lead_with_a_follower(bench)
    hosted = hosted_partition(bench)
    hosted.append(bench.batch(b"a"), bench.world.clock.now_ms(), required_acks=-1)
    deletion = PartitionDeletion(0)
    deletion.start(hosted, 0, lambda broker_id: True)
    deletion.is_pending = True
    step_down(bench)
    request = DeleteRecordsRequest(topics=(), timeout=timedelta(seconds=1000))
    response = result_of(_respond_when_deleted(bench.services, request, [("journal", (deletion,))]))
    assert response.topics[0].partitions[0].error_code is ErrorCode.not_leader_or_follower


@on_broker()
async def test_a_leadership_that_ends_before_the_last_marker_is_written_fails_the_first(bench: Bench) -> None:
    await lead_with_a_follower(bench)
    writes = _Writes(bench.services, in_thread=False)
    writes.codes[7] = {}
    writes.append(_Asked(TransactionMarker(7, 0, True, 0, 1), JOURNAL))
    assert writes.codes[7] == {JOURNAL: ErrorCode.none}
    step_down(bench)
    response = result_of(writes.finish())
    assert response.markers[0].topics[0].partitions[0].error_code is ErrorCode.not_leader_or_follower
