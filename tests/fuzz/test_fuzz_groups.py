"""Random group requests of all versions: each gets a response, the shards stay consistent, and their state survives a
restart.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable
from dataclasses import fields
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema
from tests.fuzz.mutations import fuzz
from tests.unit.broker.broker_bench import HOST, PORT, Bench, until

from ottla.broker.coordinators.shard_runtime import RuntimeState
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.protocol.schema import default_of, entity_in, is_array, is_optional, kafka_type
from ottla.sim.client import SimClient
from ottla.sim.env import World, simulate

GROUP_APIS = (
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS, ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
)  # fmt: skip
FREQUENT = (
    ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.OFFSET_COMMIT,
)  # fmt: skip
CLIENTS, REQUESTS_PER_CLIENT = 5, 25
RESPONSE_TIMEOUT_S = 3600.0  # of virtual time: longer than any rebalance
# A ConsumerProtocolSubscription of version 1: topics, no user data, no owned partitions.
SUBSCRIPTION = bytes.fromhex("0001000000010006") + b"orders" + bytes.fromhex("ffffffff00000000")
NUMBERS = (-2, -1, 0, 1, 2, 3)
GROUPS = ("g", "g", "g", "h", "")
PLAUSIBLE = 0.8


class RequestGenerator:
    """Generates requests with few distinct values and with member ids from responses, so that they interact."""

    def __init__(self, random: Random, topic_id: uuid.UUID) -> None:
        self._random = random
        self._epochs: dict[str, int] = {"": 0, "m": 0, "n": 0}  # of each member, from its last response
        self._choices: dict[str, tuple[Any, ...]] = {
            "group_id": GROUPS,
            "groups": GROUPS,
            "group_ids": GROUPS,
            "groups_names": GROUPS,
            "coordinator_keys": GROUPS,
            "key": GROUPS,
            "key_type": (0, 0, 0, 1, 2, 9),
            "topic_id": (topic_id, topic_id, uuid.UUID(int=5), None),
            "topic_name": ("orders", "gone"),
            "subscribed_topic_names": ("orders", "gone", ""),
            "subscribed_topic_regex": ("o.*", "(", ""),
            "server_assignor": ("uniform", "range", "none"),
            "protocol_type": ("consumer", "consumer", "connect", ""),
            "protocol_name": ("range", "sticky"),
            "metadata": (SUBSCRIPTION, SUBSCRIPTION, b"", b"\xff" * 9),
            "assignment": (b"", b"\x00\x01\x00\x00"),
            "committed_metadata": ("", "note", "x" * 5000),
            "states_filter": ("Stable", "empty", "none"),
            "types_filter": ("classic", "Consumer"),
        }

    def request(self) -> Any:
        random = self._random
        key = random.choice(FREQUENT if random.random() < 0.7 else GROUP_APIS)
        schema: Any = load_request_schema(key, random.randint(APIS[key].min_version, APIS[key].max_version))
        return self._entity(schema)

    def learn(self, response: Any) -> None:
        member_id = getattr(response, "member_id", None)
        if member_id:
            epoch = getattr(response, "generation_id", getattr(response, "member_epoch", 0))
            self._epochs.pop(member_id, None)
            self._epochs[member_id] = epoch

    def _entity(self, schema: Any) -> Any:
        values = {field.name: self._value(field, schema.__name__) for field in fields(schema)}
        if self._random.random() < PLAUSIBLE:
            values |= self._plausible(values)
        return schema(**values)

    def _plausible(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values that a correct client would send instead."""
        better: dict[str, Any] = {"rack_id": None, "instance_id": None, "group_instance_id": None}
        if "member_id" in values:
            epoch = self._epochs.get(values["member_id"], 0)
            better |= dict.fromkeys(("generation_id", "generation_id_or_member_epoch", "member_epoch"), epoch)
            if epoch == 0:
                better |= {
                    "topic_partitions": (),
                    "subscribed_topic_names": ("orders",),
                    "server_assignor": None,
                }
        better |= dict.fromkeys(("session_timeout", "rebalance_timeout"), timedelta(seconds=10))
        better |= {"protocol_type": "consumer", "protocol_name": "range"}
        return {name: value for name, value in better.items() if name in values}

    def _value(self, field: Any, owner: str) -> Any:
        random = self._random
        if is_optional(field.type) and random.random() < 0.4:
            return None
        entity = entity_in(field.type)
        if is_array(field.type):
            make: Callable[[], Any] = (
                (lambda: self._entity(entity)) if entity is not None else (lambda: self._single(field, owner))
            )
            return tuple(make() for _ in range(random.randrange(3)))
        return self._entity(entity) if entity is not None else self._single(field, owner)

    def _single(self, field: Any, owner: str) -> Any:
        random, name = self._random, field.name
        if name == "member_id":
            return random.choice([*list(self._epochs)[-5:], ""])
        if name == "name":
            return random.choice(("range", "sticky") if "Protocol" in owner else ("orders", "gone"))
        if name in self._choices:
            return random.choice(self._choices[name])
        match kafka_type(field):
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=random.choice((-1, 0, 6_000, 10_000)))
            case "int8" | "int32" | "int64":
                return random.choice(NUMBERS)
            case "string":
                return random.choice(("", "i", "j"))
            case "bool":
                return random.random() < 0.5
        return default_of(field)


async def send_random_requests(world: World, seed: int, topic_id: uuid.UUID) -> None:
    generator = RequestGenerator(Random(seed), topic_id)

    async def run(name: str) -> None:
        client = SimClient(world.network.host(name), (HOST, PORT), name, RESPONSE_TIMEOUT_S)
        for _ in range(REQUESTS_PER_CLIENT):
            generator.learn(await client.request(generator.request()))
        client.close()

    await asyncio.gather(*(run(f"client-{number}") for number in range(CLIENTS)))


def shards_of(bench: Bench) -> dict[int, Any]:
    return {
        runtime.hosted.topic_partition.partition: runtime for runtime in bench.services.groups.get().runtimes
    }


def durable(runtimes: dict[int, Any]) -> dict[int, Any]:
    return {index: runtime.shard.durable_state() for index, runtime in runtimes.items()}


def run_seed(seed: int) -> None:
    configs = {"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "100"}

    async def main(world: World) -> None:
        bench = Bench(world, configs, ("/data",))
        await bench.start()
        topic_id = await bench.create("orders", partitions=3)
        await bench.services.groups.get().find_coordinator("g")
        await send_random_requests(world, seed, topic_id)
        written = shards_of(bench)
        for runtime in written.values():
            runtime.shard.validate()
        await bench.stop()
        await bench.start()
        loaded = shards_of(bench)
        await until(lambda: all(runtime.state is RuntimeState.ACTIVE for runtime in loaded.values()))
        assert durable(loaded) == durable(written)
        await bench.stop()

    simulate(main, seed)


def test_every_group_request_gets_a_response_and_groups_survive_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def case(random: Random) -> None:
        with caplog.at_level(logging.WARNING):
            run_seed(random.getrandbits(32))
        assert [record.getMessage() for record in caplog.records] == []

    fuzz(case)
