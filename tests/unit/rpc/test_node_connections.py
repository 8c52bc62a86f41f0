"""One connection per node, at the node's current address."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.describe_cluster.v1.request import DescribeClusterRequest
from kio.schema.describe_cluster.v1.response import DescribeClusterResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from tests.unit.rpc.node_server import Asked, NodeServer, api_versions

from ottla.model.errors import ErrorCode, KafkaError
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.client_protocol import ResponseError
from ottla.rpc.node_connections import NodeConnections
from ottla.sim.env import World, simulate

TIMEOUT_S = 2.0
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Nodes:
    """Two servers, and the connections of a client to them as nodes 1 and 2."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.servers = {node: NodeServer(world, f"server{node}") for node in (1, 2)}
        self.addresses: dict[int, Address] = {}
        self.connections = NodeConnections(world.network.host("client"), "me", self.addresses.get)

    async def call(self, node_id: int, body: bytes = b"") -> bytes:
        return bytes(await self.connections.call_body(node_id, ApiKey.VOTE, 2, body, TIMEOUT_S))


def with_nodes(test: Callable[[Nodes], Awaitable[None]]) -> Callable[[], None]:
    async def main(world: World) -> None:
        nodes = Nodes(world)
        for node, server in nodes.servers.items():
            nodes.addresses[node] = await server.listen()
        await test(nodes)
        nodes.connections.close()
        await asyncio.sleep(1)
        assert not world.network.streams
        assert len(asyncio.all_tasks()) == 1

    def run() -> None:
        simulate(main, 5, step_limit=200_000)

    run.__name__ = getattr(test, "__name__", "run")
    return run


@with_nodes
async def test_each_node_has_one_connection(nodes: Nodes) -> None:
    for node in (1, 2, 1, 2):
        assert await nodes.call(node, b"%d" % node) == b"%d" % node
    assert [len(server.connections) for server in nodes.servers.values()] == [1, 1]


@with_nodes
async def test_a_node_without_an_address_is_a_connection_error_that_names_it(nodes: Nodes) -> None:
    with pytest.raises(ConnectionError, match="the address of node 3 is not known"):
        await nodes.call(3)
    await nodes.call(1)
    del nodes.addresses[1]
    with pytest.raises(ConnectionError, match="the address of node 1 is not known"):
        await nodes.call(1)
    await asyncio.sleep(1)
    assert nodes.servers[1].connections[0].is_closed


@with_nodes
async def test_a_node_that_moves_is_connected_to_at_its_new_address(nodes: Nodes) -> None:
    await nodes.call(1)
    old = nodes.servers[1]
    old.answer = lambda asked: None
    waiting = asyncio.create_task(nodes.call(1))
    await old.until_asked(2)
    moved = NodeServer(nodes.world, "elsewhere")
    nodes.addresses[1] = await moved.listen()
    assert await nodes.call(1, b"moved") == b"moved"
    assert len(moved.requests) == 1
    with pytest.raises(ConnectionError):
        await waiting
    assert old.connections[0].is_closed


@with_nodes
async def test_a_node_that_restarts_on_another_port_is_reached_again(nodes: Nodes) -> None:
    await nodes.call(1)
    nodes.world.network.crash("server1", silent=False)
    with pytest.raises(ConnectionError):
        await nodes.call(1)
    restarted = NodeServer(nodes.world, "server1")
    nodes.addresses[1] = await restarted.listen()
    assert await nodes.call(1, b"back") == b"back"


@with_nodes
async def test_a_dropped_connection_is_replaced_by_the_next_call(nodes: Nodes) -> None:
    await nodes.call(1)
    nodes.connections.drop(1)
    nodes.connections.drop(7)
    assert await nodes.call(1, b"again") == b"again"
    assert len(nodes.servers[1].connections) == 2


@with_nodes
async def test_a_connection_that_the_other_side_closes_between_calls_is_reported(nodes: Nodes) -> None:
    lost: list[float] = []
    nodes.connections.on_lost = lambda: lost.append(asyncio.get_running_loop().time())
    await nodes.call(1)
    await nodes.call(2)
    nodes.connections.drop(2)
    await asyncio.sleep(1)
    assert lost == []
    nodes.world.network.reset_streams("client")
    await asyncio.sleep(1)
    assert len(lost) == 1


@with_nodes
async def test_after_close_every_call_fails(nodes: Nodes) -> None:
    await nodes.call(1)
    nodes.connections.close()
    with pytest.raises(ConnectionError, match="closed"):
        await nodes.call(1)


@with_nodes
async def test_messages_are_encoded_and_decoded(nodes: Nodes) -> None:
    nodes.servers[1].answer = lambda asked: asked.respond(bytes(4) + b"\0\x1b\0")
    response = await nodes.connections.call(1, HEARTBEAT, HeartbeatResponse, TIMEOUT_S)
    assert response.error_code is ErrorCode.rebalance_in_progress
    (asked,) = nodes.servers[1].requests
    assert (asked.api_key, asked.version) == (ApiKey.HEARTBEAT, 4)


@with_nodes
async def test_a_response_that_cannot_be_read_is_an_error_and_the_connection_stays(nodes: Nodes) -> None:
    nodes.servers[1].answer = lambda asked: asked.respond(b"garbage")
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    with pytest.raises(ResponseError):
        await nodes.connections.call(1, request, DescribeClusterResponse, TIMEOUT_S)
    nodes.servers[1].answer = lambda asked: asked.respond(asked.body)
    assert await nodes.call(1, b"x") == b"x"
    assert len(nodes.servers[1].connections) == 1


@pytest.mark.parametrize(
    ("offered", "expected"), [((0, 2), 2), ((0, 99), 2), ((0, 1), 1), ((1, 1), 1), ((2, 5), 2)]
)
def test_the_latest_version_is_the_highest_that_both_nodes_know(
    offered: tuple[int, int], expected: int
) -> None:
    @with_nodes
    async def run(nodes: Nodes) -> None:
        nodes.servers[1].api_versions = api_versions(VOTE=offered)
        assert await nodes.connections.latest_version(1, ApiKey.VOTE, TIMEOUT_S, at_least=1) == expected

    run()


@pytest.mark.parametrize("offered", [(0, 0), (3, 9)])
def test_a_node_without_a_common_version_is_named(offered: tuple[int, int]) -> None:
    @with_nodes
    async def run(nodes: Nodes) -> None:
        nodes.servers[1].api_versions = api_versions(VOTE=offered)
        with pytest.raises(KafkaError, match=r"VOTE is needed in v1 to v2, but node 1 .* serves v") as failed:
            await nodes.connections.latest_version(1, ApiKey.VOTE, TIMEOUT_S, at_least=1)
        assert failed.value.code is ErrorCode.unsupported_version

    run()


def test_calls_survive_a_network_that_resets_connections_at_random() -> None:
    async def main(world: World) -> None:
        nodes = Nodes(world)

        def answer_late(asked: Asked) -> None:
            asyncio.get_running_loop().call_later(world.random.random(), asked.respond, asked.body)

        for node, server in nodes.servers.items():
            nodes.addresses[node] = await server.listen()
            server.answer = answer_late
        served = failed = 0
        for number in range(200):
            bodies = [b"%d" % (number * 10 + index) * world.random.randint(1, 500) for index in range(4)]
            calls = [
                asyncio.create_task(nodes.call(1 + index % 2, body)) for index, body in enumerate(bodies)
            ]
            if world.random.random() < 0.2:
                await asyncio.sleep(world.random.random())
                world.network.reset_streams("client")
            if world.random.random() < 0.2:
                calls[0].cancel()
            for body, result in zip(
                bodies, await asyncio.gather(*calls, return_exceptions=True), strict=True
            ):
                if isinstance(result, bytes):
                    assert result == body
                    served += 1
                else:
                    assert isinstance(result, OSError | asyncio.CancelledError)
                    failed += 1
        assert served > 400
        assert failed > 20
        nodes.connections.close()
        await asyncio.sleep(5)
        assert not world.network.streams

    simulate(main, 11)
