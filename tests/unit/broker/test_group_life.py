"""Groups from creation to deletion on a real coordinator, over the wire, in the oldest and the newest versions."""

import asyncio
import errno
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.broker_bench import Bench, on_broker
from tests.unit.broker.group_bench import message, versions

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey

SESSION = timedelta(seconds=10)


class Client:
    """Uses the oldest or the newest version of each API."""

    def __init__(self, bench: Bench, newest: bool) -> None:
        self._bench = bench
        self.newest = newest

    async def ask(self, key: ApiKey, /, **values: Any) -> Any:
        version = versions(key)[-1 if self.newest else 0]
        return await self._bench.ask(message(key, version, **values))

    async def join(self, member_id: str = "") -> Any:
        return await self.ask(
            ApiKey.JOIN_GROUP,
            group_id="g",
            session_timeout=SESSION,
            rebalance_timeout=SESSION,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"m"}],
        )

    async def commit(self, topic_id: UUID, offset: int, generation: int, member_id: str) -> ErrorCode:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "note"}
        topic = {"name": "orders", "topic_id": topic_id, "partitions": [partition]}
        response = await self.ask(
            ApiKey.OFFSET_COMMIT,
            group_id="g",
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[topic],
        )
        code: ErrorCode = response.topics[0].partitions[0].error_code
        return code

    async def committed(self, topic_id: UUID) -> tuple[int, str]:
        topics = [{"name": "orders", "topic_id": topic_id, "partition_indexes": (0,)}]
        response = await self.ask(
            ApiKey.OFFSET_FETCH, group_id="g", topics=topics, groups=[{"group_id": "g", "topics": topics}]
        )
        group = response.groups[0] if self.newest else response
        (partition,) = group.topics[0].partitions
        return partition.committed_offset, partition.metadata

    async def find_coordinator(self) -> ErrorCode:
        response = await self.ask(ApiKey.FIND_COORDINATOR, key="g", coordinator_keys=("g",))
        code: ErrorCode = (response.coordinators[0] if self.newest else response).error_code
        return code

    async def heartbeat(self, generation: int, member_id: str) -> ErrorCode:
        response = await self.ask(
            ApiKey.HEARTBEAT, group_id="g", generation_id=generation, member_id=member_id
        )
        code: ErrorCode = response.error_code
        return code

    async def state(self) -> str:
        (group,) = (await self.ask(ApiKey.DESCRIBE_GROUPS, groups=("g",))).groups
        return str(group.group_state)

    async def listed(self) -> list[str]:
        return [group.group_id for group in (await self.ask(ApiKey.LIST_GROUPS)).groups]


@pytest.mark.parametrize("newest", [False, True], ids=["oldest", "newest"])
def test_a_classic_group_from_its_first_member_to_its_deletion(newest: bool) -> None:
    @on_broker(offsets_topic_num_partitions="3", group_initial_rebalance_delay_ms="0")
    async def run(bench: Bench) -> None:
        client = Client(bench, newest)
        topic_id = await bench.create("orders")
        assert await client.find_coordinator() is ErrorCode.none
        joined = await client.join()
        if newest:  # KIP-394
            assert joined.error_code is ErrorCode.member_id_required
            joined = await client.join(joined.member_id)
        member_id, generation = joined.member_id, joined.generation_id
        assert (joined.error_code, joined.leader, generation) == (ErrorCode.none, member_id, 1)
        assert await client.commit(topic_id, 1, generation, member_id) is ErrorCode.rebalance_in_progress
        synced = await client.ask(
            ApiKey.SYNC_GROUP,
            group_id="g",
            generation_id=generation,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[{"member_id": member_id, "assignment": b"all"}],
        )
        assert (synced.error_code, synced.assignment) == (ErrorCode.none, b"all")
        assert await client.heartbeat(generation, member_id) is ErrorCode.none
        assert await client.heartbeat(generation - 1, member_id) is ErrorCode.illegal_generation
        assert await client.state() == "Stable"

        assert await client.commit(topic_id, 5, generation, member_id) is ErrorCode.none
        assert await client.commit(topic_id, 6, generation - 1, member_id) is ErrorCode.illegal_generation
        assert await client.commit(topic_id, 6, generation, "other") is ErrorCode.unknown_member_id
        assert await client.committed(topic_id) == (5, "note")

        assert await delete(client) is ErrorCode.non_empty_group
        left = await client.ask(
            ApiKey.LEAVE_GROUP, group_id="g", member_id=member_id, members=[{"member_id": member_id}]
        )
        assert left.error_code is ErrorCode.none
        assert await client.state() == "Empty"
        assert await client.listed() == ["g"]
        assert await delete(client) is ErrorCode.none
        assert await client.state() == "Dead"
        assert await client.listed() == []
        assert await client.committed(topic_id) == (-1, "")

    run()


async def delete(client: Client) -> ErrorCode:
    (result,) = (await client.ask(ApiKey.DELETE_GROUPS, groups_names=("g",))).results
    code: ErrorCode = result.error_code
    return code


@pytest.mark.parametrize("newest", [False, True], ids=["oldest", "newest"])
def test_a_consumer_group_from_its_first_member_to_its_last(newest: bool) -> None:
    @on_broker(offsets_topic_num_partitions="3")
    async def run(bench: Bench) -> None:
        client = Client(bench, newest)
        topic_id = await bench.create("orders", partitions=2)
        await client.find_coordinator()
        joining = {
            "group_id": "g",
            "member_epoch": 0,
            "rebalance_timeout": SESSION,
            "subscribed_topic_names": ("orders",),
            "topic_partitions": (),
        }
        joined = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, member_id="m" if newest else "", **joining)
        assert joined.error_code is ErrorCode.none
        (assigned,) = joined.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (topic_id, (0, 1))
        member_id, epoch = joined.member_id, joined.member_epoch
        beating = {"group_id": "g", "member_id": member_id, "topic_partitions": None}
        again = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, member_epoch=epoch, **beating)
        assert (again.error_code, again.assignment) == (ErrorCode.none, None)

        (group,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=("g",))).groups
        assert (group.error_code, group.group_epoch) == (ErrorCode.none, epoch)
        assert [member.member_id for member in group.members] == [member_id]
        assert await client.state() == "Dead"  # it is not a classic group
        if newest:  # before v9 a commit may not have a member epoch
            assert await client.commit(topic_id, 5, epoch, member_id) is ErrorCode.none
            assert await client.commit(topic_id, 6, epoch + 1, member_id) is ErrorCode.stale_member_epoch
            assert await client.committed(topic_id) == (5, "note")

        left = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, member_epoch=-1, **beating)
        assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
        (group,) = (await client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=("g",))).groups
        assert (group.group_state, group.members) == ("Empty", ())

    run()


def test_committed_offsets_survive_a_restart() -> None:
    @on_broker(offsets_topic_num_partitions="3", started=False)
    async def run(bench: Bench) -> None:
        await bench.start()
        client = Client(bench, newest=True)
        topic_id = await bench.create("orders")
        await client.find_coordinator()
        assert await client.commit(topic_id, 5, -1, "") is ErrorCode.none
        await bench.stop()
        await bench.start()
        while await client.find_coordinator() is not ErrorCode.none or await client.committed(topic_id) != (
            5,
            "note",
        ):
            pass
        assert await client.listed() == ["g"]
        await bench.stop()

    run()


@pytest.mark.parametrize("times", [1, 2, 4, 8])
def test_a_coordinator_that_runs_out_of_descriptors_while_loading_retries(times: int) -> None:
    @on_broker(started=False, offsets_topic_num_partitions="1")
    async def run(bench: Bench) -> None:
        await bench.start()
        client = Client(bench, newest=True)
        topic_id = await bench.create("orders")
        assert await client.find_coordinator() is ErrorCode.none
        assert await client.commit(topic_id, 42, -1, "") is ErrorCode.none
        await bench.stop()
        folder = "/data/__consumer_offsets-0"
        bench.disk.fail(folder, errno.EMFILE, operations=frozenset({"open", "read"}), times=times)
        await bench.start()
        await asyncio.sleep(12)
        assert await client.committed(topic_id) == (42, "note")
        assert not bench.services.log_dirs.offline
        await bench.stop()

    run()
