"""The way of a broker's commands to the active controller on another node."""

import asyncio
from typing import Any, cast

import pytest

from ottla.broker.active_controller import ActiveController
from ottla.broker.quorum_node import controller_settings
from ottla.core.controller.commands import BrokerHeartbeat
from ottla.model.config import BrokerConfig
from ottla.model.errors import KafkaError
from ottla.sim.env import World, simulate


class Quorum:
    leader_id = 2
    is_active = False


class Connections:
    """Records the timeouts of the calls, which get no response."""

    def __init__(self) -> None:
        self.timeouts_s: list[float] = []

    async def call(self, node_id: int, request: Any, response_type: Any, timeout_s: float) -> Any:
        self.timeouts_s.append(timeout_s)
        await asyncio.sleep(timeout_s)
        raise TimeoutError("no response")


def test_a_call_without_a_response_times_out_by_itself_so_that_its_connection_is_closed() -> None:
    """A cancelled call would leave the dead connection to the next heartbeat, and the broker would stay fenced."""

    async def main(world: World) -> None:
        connections = Connections()
        controller = ActiveController(1, "cluster", cast(Any, Quorum()), cast(Any, connections))
        heartbeat = BrokerHeartbeat(1, 7, 0, want_fence=False, want_shut_down=False)
        with pytest.raises(KafkaError, match=r"could not be reached within 4.5 s: no response"):
            await controller.submit(heartbeat, 4.5)
        assert connections.timeouts_s == [4.5]
        assert asyncio.get_running_loop().time() == 4.5

    simulate(main, 1)


@pytest.mark.parametrize(
    ("configs", "disconnect_ms", "activation_ms"),
    [
        ({}, 1500, 2500),
        ({"broker.session.timeout.ms": "30000"}, 5000, 2500),
        ({"controller.quorum.request.timeout.ms": "10000"}, 1500, 10_500),
        ({"broker.heartbeat.interval.ms": "3000"}, 1500, 3500),
    ],
)
def test_a_live_broker_has_time_to_report_to_the_controller(
    configs: dict[str, str], disconnect_ms: int, activation_ms: int
) -> None:
    settings = controller_settings(BrokerConfig({"node.id": "1", "log.dirs": "/data", **configs}))
    assert (settings.disconnect_grace_ms, settings.activation_grace_ms) == (disconnect_ms, activation_ms)
