"""Random transaction requests of all versions: each gets a response, the shards stay consistent, and the state of the
coordinator and of the partitions survives a restart.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from tests.fuzz.mutations import fuzz
from tests.unit.broker.broker_bench import HOST, PORT, Bench, until
from tests.unit.broker.group_bench import message

from ottla.broker.coordinators.shard_runtime import RuntimeState
from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import APIS, ApiKey
from ottla.sim.client import SimClient
from ottla.sim.env import World, simulate

CLIENTS, REQUESTS_PER_CLIENT = 4, 40
IDS = ("tx", "tx", "tx", "ty", "ty", "")
GROUPS = ("g", "g", "g", "g", "")
TOPICS = ("orders",) * 7 + ("gone", "__consumer_offsets")


class RequestGenerator:
    """Generates requests with few distinct values and with producers from responses, so that they interact."""

    def __init__(self, bench: Bench, random: Random) -> None:
        self._bench = bench
        self._random = random
        self._producers: list[tuple[int, int]] = [(-1, -1), (0, 0)]
        self._latest: dict[str, tuple[int, int]] = {}  # of each transactional id

    def request(self) -> Any:
        key = self._random.choice(list(self._makers))
        spec = APIS[key]
        # Produce v13 identifies topics by id, which makes no difference here.
        version = self._random.randint(spec.min_version, min(spec.latest_enabled(unstable=False), 12))
        return message(key, version, **self._makers[key](self))

    def learn(self, request: Any, response: Any) -> None:
        if getattr(response, "producer_id", -1) >= 0 and response.error_code is ErrorCode.none:
            producer = (response.producer_id, response.producer_epoch)
            self._producers.append(producer)
            self._latest[request.transactional_id or ""] = producer

    def _producer(self) -> dict[str, Any]:
        random = self._random
        transactional_id = random.choice(IDS)
        producer_id, epoch = random.choice(self._producers)
        if random.random() < 0.8:
            producer_id, epoch = self._latest.get(transactional_id, (0, 0))
        if random.random() < 0.05:
            epoch = max(epoch + random.choice((-1, 1)), -1)
        return {"transactional_id": transactional_id, "producer_id": producer_id, "producer_epoch": epoch}

    def _topics(self, partitions: str, index: Callable[[], Any]) -> list[dict[str, Any]]:
        random = self._random
        return [
            {"name": random.choice(TOPICS), partitions: [index() for _ in range(random.randint(0, 2))]}
            for _ in range(random.randint(0, 2))
        ]

    def _index(self) -> int:
        return self._random.choice((0, 1) * 5 + (7,))

    def _init(self) -> dict[str, Any]:
        random = self._random
        named = self._producer()
        if random.random() < 0.7:
            named |= {"producer_id": -1, "producer_epoch": -1}
        if random.random() < 0.1:
            named["transactional_id"] = None
        timeout = timedelta(milliseconds=random.choice((-1, 50, 60_000, 60_000, 60_000, 10**8)))
        return named | {"transaction_timeout": timeout, "enable2_pc": random.random() < 0.05}

    def _add(self) -> dict[str, Any]:
        producer, topics = self._producer(), self._topics("partitions", self._index)
        old = {f"v3_and_below_{name}": value for name, value in producer.items()}
        verify_only = self._random.random() < 0.3
        transaction = producer | {"topics": topics, "verify_only": verify_only}
        return old | {"v3_and_below_topics": topics, "transactions": [transaction]}

    def _offsets(self) -> dict[str, Any]:
        random = self._random

        def partition() -> dict[str, Any]:
            return {
                "partition_index": self._index(),
                "committed_offset": random.randrange(9),
                "committed_metadata": "",
            }

        member = {"generation_id": random.choice((-1, -1, 3)), "member_id": random.choice(("", "", "m"))}
        topics = self._topics("partitions", partition)
        return self._producer() | member | {"group_id": random.choice(GROUPS), "topics": topics}

    def _records(self) -> dict[str, Any]:
        random = self._random
        producer = self._producer()
        data = []
        for index in (0, 1):
            records = self._bench.batch(
                b"value",
                producer_id=producer["producer_id"],
                producer_epoch=producer["producer_epoch"],
                base_sequence=random.choice((0, 0, 0, 0, 1, 1, 2, -1)),
                transactional=random.random() < 0.9,
            )
            if random.random() < 0.8:
                data.append({"index": index, "records": records})
        if random.random() < 0.1:
            producer["transactional_id"] = None
        topic = {"name": "orders", "partition_data": data}
        return producer | {
            "acks": random.choice((-1, 1)),
            "timeout": timedelta(seconds=1),
            "topic_data": [topic],
        }

    def _markers(self) -> dict[str, Any]:
        random = self._random
        marker = self._producer() | {
            "transaction_result": random.random() < 0.5,
            "coordinator_epoch": random.choice((-1, 0, 0)),  # a later epoch would fence the real coordinator
            "transaction_version": random.choice((0, 2)),
            "topics": self._topics("partition_indexes", self._index),
        }
        return {"markers": [marker]}

    _makers: dict[ApiKey, Callable[["RequestGenerator"], dict[str, Any]]] = {  # noqa: RUF012
        ApiKey.INIT_PRODUCER_ID: _init,
        ApiKey.ADD_PARTITIONS_TO_TXN: _add,
        ApiKey.ADD_OFFSETS_TO_TXN: lambda self: self._producer() | {"group_id": self._random.choice(GROUPS)},
        ApiKey.END_TXN: lambda self: self._producer() | {"committed": self._random.random() < 0.5},
        ApiKey.TXN_OFFSET_COMMIT: _offsets,
        ApiKey.PRODUCE: _records,
        ApiKey.WRITE_TXN_MARKERS: _markers,
        ApiKey.LIST_TRANSACTIONS: lambda self: {
            "transactional_id_pattern": self._random.choice(("t.*", "(", None))
        },
    }


async def send_random_requests(bench: Bench, world: World, seed: int) -> None:
    generator = RequestGenerator(bench, Random(seed))

    async def run(name: str) -> None:
        client = SimClient(world.network.host(name), (HOST, PORT), name, 3600.0)
        for _ in range(REQUESTS_PER_CLIENT):
            request = generator.request()
            generator.learn(request, await client.request(request))
        client.close()

    await asyncio.gather(*(run(f"client-{number}") for number in range(CLIENTS)))


def durable_state(bench: Bench) -> Any:
    runtimes = [*bench.services.transactions.get().runtimes, *bench.services.groups.get().runtimes]
    partitions = sorted(bench.services.partitions, key=lambda hosted: hosted.topic_partition)
    return (
        [runtime.shard.durable_state() for runtime in runtimes],
        [sorted(hosted.log.producers.entries()) for hosted in partitions],
        [hosted.leader.last_stable_offset for hosted in partitions],
    )


def run_seed(seed: int) -> None:
    configs = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}

    async def main(world: World) -> None:
        bench = Bench(world, configs, ("/data",))
        await bench.start()
        await bench.create("orders", partitions=2)
        await bench.services.groups.get().find_coordinator("g")
        await bench.services.transactions.get().find_coordinator("tx")
        await send_random_requests(bench, world, seed)
        await asyncio.sleep(120)  # open transactions have timed out
        for runtime in [*bench.services.transactions.get().runtimes, *bench.services.groups.get().runtimes]:
            runtime.shard.validate()
        written = durable_state(bench)
        await bench.stop()
        await bench.start()
        runtimes = [*bench.services.transactions.get().runtimes, *bench.services.groups.get().runtimes]
        await until(lambda: all(runtime.state is RuntimeState.ACTIVE for runtime in runtimes))
        assert durable_state(bench) == written
        await bench.stop()

    simulate(main, seed)


def test_every_transaction_request_gets_a_response_and_transactions_survive_a_restart(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def case(random: Random) -> None:
        with caplog.at_level(logging.WARNING):
            run_seed(random.getrandbits(32))
        assert [record.getMessage() for record in caplog.records] == []

    fuzz(case)
