"""A connection to another node on the simulated network: pipelining, failures, timeouts, and connecting again."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.rpc.node_server import Asked, NodeServer, api_versions

from ottla.model.errors import ErrorCode
from ottla.protocol.api_keys import ApiKey
from ottla.rpc.addresses import Address
from ottla.rpc.node_connection import NodeConnection
from ottla.sim.env import World, simulate

KEY, VERSION = ApiKey.VOTE, 2
TIMEOUT_S = 2.0

Test = Callable[[World, NodeServer, NodeConnection], Awaitable[None]]


def on_network(test: Test) -> Callable[[], None]:
    """Runs a test with a server on the host `server`, and a connection from the host `client` to it."""

    async def main(world: World) -> None:
        server = NodeServer(world, "server")
        address = await server.listen()
        connection = NodeConnection(world.network.host("client"), address, "me")
        await test(world, server, connection)
        connection.close()
        await asyncio.sleep(1)
        assert not world.network.streams, "no connection is left"
        assert len(asyncio.all_tasks()) == 1, "no task is left"

    def run() -> None:
        simulate(main, 3, step_limit=200_000)

    run.__name__ = getattr(test, "__name__", "run")
    return run


async def call(connection: NodeConnection, body: bytes, timeout_s: float = TIMEOUT_S) -> bytes:
    return bytes(await connection.call(KEY, VERSION, body, timeout_s))


def ignore(asked: Asked) -> None:
    """No response."""


@on_network
async def test_the_first_call_connects_and_later_ones_use_the_connection(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    assert not server.connections
    for body in (b"one", b"two"):
        assert await call(connection, body) == body
    assert len(server.connections) == 1
    assert [(asked.api_key, asked.version) for asked in server.requests] == [(KEY, VERSION)] * 2


@on_network
async def test_responses_in_any_order_reach_their_calls(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.answer = ignore
    bodies = [b"%d" % number * 3000 for number in range(5)]
    calls = [asyncio.create_task(call(connection, body)) for body in bodies]
    await server.until_asked(5)
    for asked in reversed(server.requests):
        asked.respond(asked.body)
    assert await asyncio.gather(*calls) == bodies
    assert len(server.connections) == 1


@on_network
async def test_calls_before_the_connection_is_made_share_it(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    bodies = [b"%d" % number for number in range(20)]
    assert await asyncio.gather(*(call(connection, body) for body in bodies)) == bodies
    assert len(server.connections) == 1


@on_network
async def test_a_node_that_does_not_listen_is_an_error_at_once_and_the_next_call_connects_again(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.stop_listening()
    before = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionError, match=f"cannot connect to {connection.address}: nothing listens"):
        await call(connection, b"")
    assert asyncio.get_running_loop().time() - before < 0.1
    await server.listen(connection.address.port)
    assert await call(connection, b"back") == b"back"


@on_network
async def test_all_calls_that_wait_for_a_connection_fail_with_it(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.stop_listening()
    results = await asyncio.gather(*(call(connection, b"") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, ConnectionError) for result in results)


@on_network
async def test_a_reset_fails_the_calls_in_flight_and_the_next_one_connects_again(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.answer = ignore
    calls = [asyncio.create_task(call(connection, b"")) for _ in range(3)]
    await server.until_asked(3)
    world.network.reset_streams("client")
    for failed in calls:
        with pytest.raises(ConnectionError, match=f"the connection to {connection.address} is lost"):
            await failed
    server.answer = lambda asked: asked.respond(b"again")
    assert await call(connection, b"") == b"again"
    assert len(server.connections) == 2


@on_network
async def test_an_idle_connection_that_the_other_side_closes_is_replaced(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    await call(connection, b"")
    server.connections[0].stream.close()
    await asyncio.sleep(1)
    assert await call(connection, b"again") == b"again"


@on_network
async def test_a_response_that_does_not_come_in_time_closes_the_connection(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.answer = ignore
    other = asyncio.create_task(call(connection, b"other", 60))
    with pytest.raises(TimeoutError, match="has not responded to VOTE in 2 s"):
        await call(connection, b"")
    with pytest.raises(OSError, match="has not responded"):
        await other
    assert asyncio.get_running_loop().time() < 10
    server.answer = lambda asked: asked.respond(asked.body)
    assert await call(connection, b"again") == b"again"
    assert [side.is_closed for side in server.connections] == [True, False]


@on_network
async def test_a_network_partition_is_a_timeout_before_and_after_the_connection_is_made(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    for _ in range(2):
        world.network.partition("client", "server")
        with pytest.raises(TimeoutError):
            await call(connection, b"")
        world.network.heal()
        assert await call(connection, b"healed") == b"healed"


@on_network
async def test_a_cancelled_call_leaves_the_connection_usable_and_its_response_is_dropped(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.answer = ignore
    cancelled = asyncio.create_task(call(connection, b"cancelled"))
    kept = asyncio.create_task(call(connection, b"kept"))
    await server.until_asked(2)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    for asked in server.requests:
        asked.respond(asked.body)
    assert await kept == b"kept"
    server.answer = lambda asked: asked.respond(asked.body)
    assert await call(connection, b"next") == b"next"
    assert len(server.connections) == 1


@on_network
async def test_cancelling_the_call_that_connects_does_not_disturb_the_others(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    first = asyncio.create_task(call(connection, b"first"))
    second = asyncio.create_task(call(connection, b"second"))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == b"second"
    assert len(server.connections) == 1


@on_network
async def test_a_call_that_is_cancelled_while_the_connection_breaks_is_silent(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.answer = ignore
    task = asyncio.create_task(call(connection, b""))
    await server.until_asked(1)
    connection.close()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize(
    "garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", bytes(100), b"\xff" * 100, b"\0\0\0\x08\0\0\x30\x39abcd"]
)
def test_bytes_that_are_no_response_close_the_connection(garbage: bytes) -> None:
    @on_network
    async def run(world: World, server: NodeServer, connection: NodeConnection) -> None:
        server.answer = lambda asked: asked.connection.stream.send([garbage])
        with pytest.raises(
            ConnectionError, match=f"{connection.address} has sent bytes that are no response"
        ):
            await call(connection, b"")
        server.answer = lambda asked: asked.respond(asked.body)
        assert await call(connection, b"again") == b"again"

    run()


@on_network
async def test_a_closed_connection_fails_its_calls_and_accepts_no_others(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.answer = ignore
    task = asyncio.create_task(call(connection, b""))
    await server.until_asked(1)
    connection.close()
    for failed in (task, call(connection, b"")):
        with pytest.raises(ConnectionError, match="was closed by this node"):
            await failed


@on_network
async def test_closing_while_it_connects_leaves_no_connection(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    task = asyncio.create_task(call(connection, b""))
    await asyncio.sleep(0)
    connection.close()
    with pytest.raises(ConnectionError):
        await task


def test_a_host_name_that_cannot_be_resolved_is_a_connection_error() -> None:
    class BrokenNetwork:
        async def listen(self, *arguments: object) -> None: ...

        async def connect(self, *arguments: object) -> None:
            raise UnicodeError("label empty or too long")

    async def main(world: World) -> None:
        connection = NodeConnection(BrokenNetwork(), Address("a..b", 1), "me")  # type: ignore[arg-type]
        with pytest.raises(ConnectionError, match=r"cannot connect to a\.\.b:1: label empty"):
            await call(connection, b"")

    simulate(main, 1)


@on_network
async def test_versions_are_asked_once_per_connection(
    world: World, server: NodeServer, connection: NodeConnection
) -> None:
    server.api_versions = api_versions(FETCH=(4, 17))
    for _ in range(3):
        assert (await connection.versions(TIMEOUT_S))[ApiKey.FETCH] == (4, 17)
    assert [asked.api_key for asked in server.requests] == [ApiKey.API_VERSIONS]
    world.network.reset_streams("client")
    await asyncio.sleep(1)
    server.api_versions = api_versions(FETCH=(4, 18))
    assert (await connection.versions(TIMEOUT_S))[ApiKey.FETCH] == (4, 18)
    assert await call(connection, b"") == b""
    assert len(server.connections) == 2


@pytest.mark.parametrize("response", [b"", b"\0", b"\xff" * 40, api_versions(ErrorCode.unsupported_version)])
def test_versions_that_cannot_be_read_close_the_connection(response: bytes) -> None:
    @on_network
    async def run(world: World, server: NodeServer, connection: NodeConnection) -> None:
        server.api_versions = response
        with pytest.raises(ConnectionError):
            await connection.versions(TIMEOUT_S)
        server.api_versions = api_versions()
        assert ApiKey.VOTE in await connection.versions(TIMEOUT_S)
        assert len(server.connections) == 2

    run()
