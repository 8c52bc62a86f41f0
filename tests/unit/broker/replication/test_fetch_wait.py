"""How long the fetches of followers wait at an idle leader."""

import asyncio
from typing import Any

import pytest

from ottla.broker.quorum.peers import PeerSettings
from ottla.broker.replication.replica_fetcher import FetcherSettings, ReplicaFetcher
from ottla.core.replication_throttle import ReplicationThrottle
from ottla.model.config import BrokerConfig
from ottla.sim.loop import run


def test_a_fetcher_waits_longer_and_longer_after_a_partition_was_added() -> None:
    async def main() -> list[int]:
        unused: Any = None
        settings = FetcherSettings(500, 1, 1000, 1000, 1.0, 30.0)
        fetcher = ReplicaFetcher(
            unused,
            unused,
            settings,
            ReplicationThrottle(1, 11, 1000),
            local_id=1,
            source_id=2,
            broker_epoch=lambda: 1,
        )
        fetcher._last_added_s = asyncio.get_running_loop().time()
        waits = []
        for pause_s in (0.0, 0.03, 0.07, 0.4, 2.5):
            await asyncio.sleep(pause_s)
            waits.append(fetcher._wait_ms())
        await fetcher.close()
        return waits

    assert run(main()) == [20, 20, 50, 250, 500]


@pytest.mark.parametrize(
    ("fetch_timeout_ms", "request_timeout_ms", "wait_ms"),
    [(2_000, 2_000, 500), (1_000, 2_000, 500), (20_000, 2_000, 500), (20_000, 12_000, 3_000)],
)
def test_a_quorum_with_long_timeouts_polls_less_often(
    fetch_timeout_ms: int, request_timeout_ms: int, wait_ms: int
) -> None:
    config = BrokerConfig(
        {
            "controller.quorum.fetch.timeout.ms": str(fetch_timeout_ms),
            "controller.quorum.request.timeout.ms": str(request_timeout_ms),
        }
    )
    assert PeerSettings.from_config(config).fetch_wait_ms == wait_ms
