"""Offsets in old segments are looked up in a thread, and so are damaged indexes rebuilt; reads at the end are not."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.broker.broker_bench import Bench, on_broker, until

from ottla.model.errors import ErrorCode

BATCH_BYTES = 9_000
BATCHES = 500  # more than two segments of 2 MB


async def fill(bench: Bench) -> Any:
    topic_id = await bench.create("journal", segment_bytes=str(2 << 20))
    hosted = bench.services.partitions.find_replica("journal", None, 0)
    for number in range(BATCHES):
        payload = number.to_bytes(4) + bytes(BATCH_BYTES)
        hosted.append(bench.batch(payload), bench.world.clock.now_ms(), required_acks=1)
    assert len(hosted.log.segments) == 3
    return topic_id


async def first_value(bench: Bench, topic_id: Any, offset: int) -> int:
    value = (await bench.read(topic_id, offset))[0]
    assert value is not None
    return int.from_bytes(value[:4])


async def count_thread_work(bench: Bench, topic_id: Any) -> list[Callable[[], object]]:
    """The work that threads get, without the loading of the handlers."""
    await bench.produce("journal", b"next")
    await bench.client.fetch(topic_id, 0, BATCHES + 1, max_wait_ms=0)
    threads: Any = bench.services.env.threads
    run, works = threads.run, []

    async def counted(work: Callable[[], object]) -> object:
        works.append(work)
        return await run(work)

    threads.run = counted
    return works


def remove_indexes(bench: Bench) -> None:
    for name in bench.disk.list_dir("/data/journal-0"):
        if name.endswith((".index", ".timeindex")):
            bench.disk.remove(f"/data/journal-0/{name}")


@on_broker()
async def test_a_fetch_rebuilds_a_missing_index_in_a_thread(bench: Bench) -> None:
    topic_id = await fill(bench)
    await bench.stop()
    remove_indexes(bench)
    await bench.start()
    for offset in (0, 100, 300):
        assert await first_value(bench, topic_id, offset) == offset
    assert bench.disk.exists(f"/data/journal-0/{0:020d}.index")


@on_broker()
async def test_list_offsets_rebuilds_missing_indexes_in_a_thread(bench: Bench) -> None:
    await fill(bench)
    await bench.stop()
    remove_indexes(bench)
    await bench.start()
    partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=0)
    topic = ListOffsetsTopic(name="journal", partitions=(partition,))
    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=(topic,), timeout=timedelta())
    response = await bench.ask(request)
    (found,) = response.topics[0].partitions
    assert (found.error_code, found.offset) == (ErrorCode.none, 0)


@on_broker()
async def test_retention_rebuilds_missing_indexes_in_a_thread(bench: Bench) -> None:
    await fill(bench)
    await bench.stop()
    remove_indexes(bench)
    await bench.start(log_initial_task_delay_ms="0", log_retention_ms="1000000000")
    await until(lambda: bench.disk.exists(f"/data/journal-0/{0:020d}.timeindex"))


@on_broker()
async def test_a_lookup_in_an_old_segment_uses_a_thread(bench: Bench) -> None:
    topic_id = await fill(bench)
    await bench.stop()
    await bench.start()
    works = await count_thread_work(bench, topic_id)
    assert await first_value(bench, topic_id, 100) == 100
    assert works
    works.clear()
    assert await first_value(bench, topic_id, 120) == 120
    assert not works, "the indexes are loaded once"


@on_broker()
async def test_a_read_at_the_end_of_the_log_uses_no_thread(bench: Bench) -> None:
    topic_id = await fill(bench)
    works = await count_thread_work(bench, topic_id)
    assert not (await bench.client.fetch(topic_id, 0, BATCHES + 1, max_wait_ms=0)).records
    await bench.produce("journal", b"last")
    assert await bench.read(topic_id, BATCHES + 1) == [b"last"]
    assert not works
