"""One broker and one fault: a failed or full disk, a client that does not read or sends invalid requests."""

import asyncio
import errno
from uuid import UUID

import pytest

from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch, read_batches
from ottla.sim.client import SimClient
from ottla.sim.disk import WRITES
from ottla.sim.env import World, simulate
from ottla.sim.network import SimStream
from ottla.sim.node import HOST, PORT, BrokerNode

TWO_DISKS = {"log.dirs": "/one,/two"}
PARTITIONS = 4


def new_client(world: World, name: str = "client") -> SimClient:
    return SimClient(world.network.host(name), (HOST, PORT), name)


def one_record(world: World, size: int = 10) -> bytes:
    return build_batch([Record(0, world.clock.now_ms(), b"key", bytes(size))])


async def new_topic(client: SimClient, partitions: int) -> UUID:
    assert await client.create_topic("journal", partitions, {}) == ErrorCode.none
    topic_id = (await client.metadata("journal")).topics[0].topic_id
    assert topic_id is not None
    return topic_id


async def errors_of_produce(world: World, client: SimClient, topic_id: UUID) -> dict[int, ErrorCode]:
    return {
        index: (await client.produce(topic_id, index, one_record(world))).error_code
        for index in range(PARTITIONS)
    }


def partitions_on(node: BrokerNode, path: str) -> set[int]:
    return {int(name[-1]) for name in node.disk.list_dir(path) if name.startswith("journal-")}


def check_failing_disk(error: int, operations: frozenset[str] | None) -> None:
    async def main(world: World) -> None:
        node = BrokerNode(world, TWO_DISKS)
        await node.start()
        client = new_client(world)
        topic_id = await new_topic(client, PARTITIONS)
        assert set((await errors_of_produce(world, client, topic_id)).values()) == {ErrorCode.none}
        lost = partitions_on(node, "/two")
        assert len(lost) == PARTITIONS / 2
        node.disk.fail("/two", error, operations=operations)
        for _ in range(2):
            errors = await errors_of_produce(world, client, topic_id)
            assert {index for index, code in errors.items() if code == ErrorCode.kafka_storage_error} == lost
            assert {code for index, code in errors.items() if index not in lost} == {ErrorCode.none}
        for index in range(PARTITIONS):
            response = await client.fetch(topic_id, index, 0, max_wait_ms=0)
            expected = ErrorCode.kafka_storage_error if index in lost else ErrorCode.none
            assert response.error_code == expected
        await node.stop()
        await node.start()
        assert set((await errors_of_produce(world, client, topic_id)).values()) == {ErrorCode.none}
        await node.stop()

    simulate(main, 1)


def test_a_failed_disk_takes_only_its_own_partitions_offline_until_a_restart() -> None:
    check_failing_disk(errno.EIO, None)


def test_a_full_disk_takes_only_its_own_partitions_offline_until_a_restart() -> None:
    check_failing_disk(errno.ENOSPC, WRITES)


@pytest.mark.slow
def test_a_client_that_does_not_read_keeps_only_one_response_in_memory() -> None:
    async def main(world: World) -> None:
        node = BrokerNode(world)
        await node.start()
        client = new_client(world)
        topic_id = await new_topic(client, 1)
        for _ in range(4):
            await client.produce(topic_id, 0, one_record(world, 100_000))
        # The first fetch waits until its handler is loaded, and its response is sent with the next one.
        await client.fetch(topic_id, 0, 0)
        (stream,) = (stream for stream in world.network.streams.values() if stream.host == "client")
        stream.pause_reading()
        fetches = [asyncio.create_task(client.fetch(topic_id, 0, 0)) for _ in range(50)]
        await asyncio.sleep(5)
        assert 0 < unsent_bytes(stream.other) < 500_000
        other = new_client(world, "other")
        assert (await other.fetch(topic_id, 0, 0)).error_code == ErrorCode.none
        stream.resume_reading()
        for response in await asyncio.gather(*fetches):
            assert len(read_batches(response.records or b"")) == 4
        await node.stop()

    simulate(main, 1)


def unsent_bytes(stream: SimStream) -> int:
    return sum(len(part) for part in stream._backlog)


def test_other_clients_are_served_while_clients_send_invalid_requests() -> None:
    async def main(world: World) -> None:
        node = BrokerNode(world)
        await node.start()
        client = new_client(world)
        topic_id = await new_topic(client, 1)
        random = world.derive()
        for number in range(100):
            invalid = new_client(world, f"invalid-{number}")
            await invalid.metadata("journal")
            (stream,) = (s for s in world.network.streams.values() if s.host == f"invalid-{number}")
            size = random.randrange(2, 100)
            stream.send([random.choice((size, -1, 2**31 - 1)).to_bytes(4, "big", signed=True)])
            stream.send([random.randbytes(size)])
        await asyncio.sleep(1)
        response = await client.produce(topic_id, 0, one_record(world))
        assert response.error_code == ErrorCode.none
        assert (await client.fetch(topic_id, 0, 0)).high_watermark == 1
        await node.stop()

    simulate(main, 1)
