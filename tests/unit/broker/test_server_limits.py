"""The listener: how many connections it takes, and which it closes."""

import asyncio
from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

from ottla.broker.connection import Answer, ClientConnection
from ottla.broker.pending import Pending
from ottla.broker.server import Server, ServerLimits
from ottla.env.network import Stream
from ottla.protocol.framing import Frame
from ottla.sim.env import World, simulate
from ottla.sim.network import SimStream

HOST, PORT = "broker", 9092


class Peer:
    """The client's side of a connection."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.is_closed = False
        self.data = b""
        self._space = bytearray(1000)

    def buffer(self) -> memoryview:
        return memoryview(self._space)

    def received(self, count: int) -> None:
        self.data += self._space[:count]

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None:
        self.is_closed = True


class Clients:
    def __init__(self, world: World, server: Server) -> None:
        self.server = server
        self._world = world

    async def connect(self, host: str = "client") -> Peer:
        stream = await self._world.network.host(host).connect(HOST, PORT, Peer)
        assert isinstance(stream, SimStream)
        peer: Any = stream._receiver
        await asyncio.sleep(1)
        return peer  # type: ignore[no-any-return]


def echo(connection: ClientConnection, frame: Frame) -> "Answer | Pending[Answer]":
    return Pending() if frame == b"wait" else [frame]


def limits(**changed: Any) -> ServerLimits:
    values: dict[str, Any] = {
        "socket_request_max_bytes": 1000,
        "connections_max_idle_ms": 600_000,
        "max_connections": 100,
        "max_connections_per_ip": 100,
        "max_connections_per_ip_overrides": {},
    }
    return ServerLimits(**(values | changed))


def on_server(chosen: ServerLimits, main: Callable[[Clients], Awaitable[None]]) -> None:
    async def run(world: World) -> None:
        env = world.process(HOST, world.new_disk()).env
        server = Server(env, echo, chosen)
        assert await server.listen(HOST, PORT) == (HOST, PORT)
        await main(Clients(world, server))
        await server.close()

    simulate(run, 1)


def test_connections_over_max_connections_are_closed_until_another_ends() -> None:
    async def main(clients: Clients) -> None:
        first, second = await clients.connect("a"), await clients.connect("b")
        third = await clients.connect("c")
        assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, True)
        first.stream.close()
        await asyncio.sleep(1)
        assert not (await clients.connect("c")).is_closed

    on_server(limits(max_connections=2), main)


def test_each_address_has_a_limit_of_its_own_and_an_override_goes_before_it() -> None:
    async def main(clients: Clients) -> None:
        assert not (await clients.connect("a")).is_closed
        assert (await clients.connect("a")).is_closed
        assert not (await clients.connect("b")).is_closed
        assert not (await clients.connect("guest")).is_closed
        assert not (await clients.connect("guest")).is_closed
        assert (await clients.connect("guest")).is_closed
        assert len(clients.server.connections) == 4

    on_server(limits(max_connections_per_ip=1, max_connections_per_ip_overrides={"guest": 2}), main)


def test_limits_that_change_hold_for_the_next_connection() -> None:
    async def main(clients: Clients) -> None:
        await clients.connect()
        clients.server.limits = limits(max_connections=1)
        assert (await clients.connect()).is_closed

    on_server(limits(), main)


def test_a_connection_that_says_nothing_for_too_long_is_closed_and_one_that_speaks_is_not() -> None:
    async def main(clients: Clients) -> None:
        silent, busy = await clients.connect(), await clients.connect()
        for _ in range(6):
            busy.stream.send([pack(">i", 1) + b"."])
            await asyncio.sleep(0.5)
        assert silent.is_closed
        assert not busy.is_closed
        assert busy.data == b"." * 6
        assert len(clients.server.connections) == 1

    on_server(limits(connections_max_idle_ms=1000), main)


def test_a_connection_whose_request_waits_is_not_idle() -> None:
    async def main(clients: Clients) -> None:
        waiting = await clients.connect()
        waiting.stream.send([pack(">i", 4) + b"wait"])
        await asyncio.sleep(5)
        assert not waiting.is_closed

    on_server(limits(connections_max_idle_ms=1000), main)


def test_close_ends_every_connection_and_takes_no_new_one() -> None:
    async def main(clients: Clients) -> None:
        peers = [await clients.connect(), await clients.connect("other")]
        await clients.server.close()
        await asyncio.sleep(1)
        assert [peer.is_closed for peer in peers] == [True, True]
        assert not clients.server.connections
        try:
            await clients.connect()
        except ConnectionRefusedError:
            return
        raise AssertionError("a closed server took a connection")

    on_server(limits(), main)
