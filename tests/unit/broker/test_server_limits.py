"""The server: how many connections it accepts, and which it closes."""

import asyncio
from collections.abc import Awaitable, Callable
from struct import pack
from typing import Any

from ottla.broker.connection import ClientConnection, Dispatch, ResponseParts
from ottla.broker.promise import Promise
from ottla.broker.request_memory import RequestMemory
from ottla.broker.server import ListenerLimits, Server, ServerLimits
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

    async def connect(self, host: str = "client", port: int = PORT, wait_s: float = 1) -> Peer:
        stream = await self._world.network.host(host).connect(HOST, port, Peer)
        assert isinstance(stream, SimStream)
        peer: Any = stream._receiver
        await asyncio.sleep(wait_s)
        return peer


def echo(connection: ClientConnection, frame: Frame) -> "ResponseParts | Promise[ResponseParts]":
    return Promise() if frame == b"wait" else [frame]


def limits(**changed: Any) -> ServerLimits:
    values: dict[str, Any] = {
        "socket_request_max_bytes": 1000,
        "connections_max_idle_ms": 600_000,
        "max_connections": 100,
        "max_connections_per_ip": 100,
        "max_connections_per_ip_overrides": {},
    }
    return ServerLimits(**(values | changed))


def on_server(
    chosen: ServerLimits,
    main: Callable[[Clients], Awaitable[None]],
    *,
    dispatch: Dispatch = echo,
    memory: RequestMemory | None = None,
) -> None:
    async def run(world: World) -> None:
        env = world.process(HOST, world.new_disk()).env
        server = Server(env, dispatch, chosen, memory=memory)
        assert await server.listen(HOST, PORT) == (HOST, PORT)
        await main(Clients(world, server))
        await server.close()

    simulate(run, 1)


def test_connections_beyond_max_connections_wait_until_another_ends() -> None:
    async def main(clients: Clients) -> None:
        first, second = await clients.connect("a"), await clients.connect("b")
        third = await clients.connect("c")
        third.stream.send([pack(">i", 1) + b"."])
        await asyncio.sleep(5)
        assert (first.is_closed, second.is_closed, third.is_closed) == (False, False, False)
        assert third.data == b""
        assert len(clients.server.connections) == 2
        first.stream.close()
        await asyncio.sleep(1)
        assert third.data == b"."
        assert len(clients.server.connections) == 2

    on_server(limits(max_connections=2), main)


def test_a_connection_that_gave_up_waiting_is_not_accepted() -> None:
    async def main(clients: Clients) -> None:
        first, second = await clients.connect("a"), await clients.connect("b")
        second.stream.close()
        await asyncio.sleep(1)
        first.stream.close()
        await asyncio.sleep(1)
        assert not clients.server.connections

    on_server(limits(max_connections=1), main)


def test_a_limit_of_one_listener_applies_to_that_listener_only() -> None:
    async def main(clients: Clients) -> None:
        await clients.server.listen(HOST, 9093, "OUTSIDE")
        for _ in range(2):
            await clients.connect(port=9093)
        assert len(clients.server.connections) == 1
        await clients.connect()
        assert len(clients.server.connections) == 2

    on_server(limits(by_listener={"OUTSIDE": ListenerLimits(max_connections=1)}), main)


def test_connections_beyond_the_creation_rate_wait_and_none_is_lost() -> None:
    async def main(clients: Clients) -> None:
        # Two per second allow ten at once in a window of five seconds.
        peers = [await clients.connect(wait_s=0) for _ in range(16)]
        assert len(clients.server.connections) == 10
        await asyncio.sleep(1.1)
        assert len(clients.server.connections) == 12
        await asyncio.sleep(2)
        assert len(clients.server.connections) == 16
        assert not any(peer.is_closed for peer in peers)

    on_server(limits(max_connection_creation_rate=2, rate_window_s=5), main)


def test_raising_the_creation_rate_accepts_waiting_connections() -> None:
    async def main(clients: Clients) -> None:
        await clients.connect()
        await asyncio.sleep(60)
        assert not clients.server.connections
        clients.server.limits = limits(max_connection_creation_rate=5)
        await asyncio.sleep(0.1)
        assert len(clients.server.connections) == 1

    on_server(limits(max_connection_creation_rate=0), main)


def test_each_ip_address_has_its_own_limit_and_an_override_takes_precedence() -> None:
    async def main(clients: Clients) -> None:
        assert not (await clients.connect("a")).is_closed
        assert (await clients.connect("a")).is_closed
        assert not (await clients.connect("b")).is_closed
        assert not (await clients.connect("guest")).is_closed
        assert not (await clients.connect("guest")).is_closed
        assert (await clients.connect("guest")).is_closed
        assert len(clients.server.connections) == 4

    on_server(limits(max_connections_per_ip=1, max_connections_per_ip_overrides={"guest": 2}), main)


def test_changed_limits_apply_to_the_next_connection() -> None:
    async def main(clients: Clients) -> None:
        await clients.connect()
        clients.server.limits = limits(max_connections=1)
        await clients.connect()
        assert len(clients.server.connections) == 1
        clients.server.limits = limits()
        await asyncio.sleep(1)
        assert len(clients.server.connections) == 2

    on_server(limits(), main)


def test_an_idle_connection_is_closed_and_an_active_one_is_not() -> None:
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


def test_a_jump_of_the_wall_clock_closes_no_connection_and_keeps_none_open() -> None:
    async def main(clients: Clients) -> None:
        silent, busy = await clients.connect(wait_s=0.1), await clients.connect(wait_s=0.1)
        clients._world.clock_of(HOST).jump(3_600_000)
        await asyncio.sleep(0.3)
        assert not silent.is_closed
        clients._world.clock_of(HOST).jump(-7_200_000)
        for _ in range(6):
            busy.stream.send([pack(">i", 1) + b"."])
            await asyncio.sleep(0.5)
        assert silent.is_closed
        assert not busy.is_closed

    on_server(limits(connections_max_idle_ms=1000), main)


def test_a_negative_idle_time_closes_no_connection() -> None:
    async def main(clients: Clients) -> None:
        peer = await clients.connect()
        await asyncio.sleep(1_000_000)
        assert not peer.is_closed
        clients.server.limits = limits(connections_max_idle_ms=1000)
        await asyncio.sleep(40)
        assert peer.is_closed

    on_server(limits(connections_max_idle_ms=-1), main)


def test_a_connection_whose_request_is_delayed_beyond_the_idle_time_is_closed_as_in_kafka() -> None:
    async def main(clients: Clients) -> None:
        waiting = await clients.connect()
        waiting.stream.send([pack(">i", 4) + b"wait"])
        await asyncio.sleep(0.9)
        assert not waiting.is_closed
        await asyncio.sleep(5)
        assert waiting.is_closed

    on_server(limits(connections_max_idle_ms=1000), main)


def test_close_ends_every_connection_and_accepts_no_new_one() -> None:
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


def part_of_request(size: int, sent: int) -> bytes:
    return pack(">i", size) + bytes(sent)


def test_when_the_request_memory_is_used_up_connections_wait_and_all_are_served_in_the_end() -> None:
    memory = RequestMemory(1000)

    async def main(clients: Clients) -> None:
        # Five incomplete requests hold all of the memory together, and each needs more.
        peers = [await clients.connect() for _ in range(5)]
        for peer in peers:
            peer.stream.send([part_of_request(900, 300)])
        await asyncio.sleep(1)
        assert memory.used_bytes >= 1000
        for peer in peers:
            peer.stream.send([bytes(600)])
        await asyncio.sleep(30)
        assert [len(peer.data) for peer in peers] == [900] * 5
        assert not any(peer.is_closed for peer in peers)
        assert memory.used_bytes == 0

    on_server(limits(), main, memory=memory)


def test_a_connection_above_its_share_of_memory_waits_and_one_below_it_is_served() -> None:
    memory = RequestMemory(1000)
    promises: list[Promise[ResponseParts]] = []

    def hold(connection: ClientConnection, frame: Frame) -> "ResponseParts | Promise[ResponseParts]":
        if len(frame) == 1:
            return [frame]
        promises.append(Promise())
        return promises[-1]

    async def main(clients: Clients) -> None:
        first, second, large = [await clients.connect() for _ in range(3)]
        first.stream.send([part_of_request(1000, 1000)])
        await asyncio.sleep(1)
        assert memory.used_bytes == 1000
        large.stream.send([part_of_request(900, 300)])  # read before the connection asks for memory
        await asyncio.sleep(1)
        large.stream.send([bytes(600)])
        for _ in range(2):
            second.stream.send([part_of_request(1, 1)])
            await asyncio.sleep(1)
        assert second.data == b"\0\0"
        assert len(promises) == 1
        promises[0].complete([b"done"])
        await asyncio.sleep(1)
        assert len(promises) == 2
        promises[1].complete([b"large"])
        await asyncio.sleep(1)
        assert (first.data, large.data) == (b"done", b"large")
        assert memory.used_bytes == 0

    on_server(limits(), main, dispatch=hold, memory=memory)


def test_a_connection_that_ends_releases_its_memory() -> None:
    memory = RequestMemory(900)

    async def main(clients: Clients) -> None:
        first, second = await clients.connect(), await clients.connect()
        first.stream.send([part_of_request(1000, 990)])
        second.stream.send([part_of_request(900, 300)])  # more than its share
        await asyncio.sleep(1)
        second.stream.send([bytes(600)])
        await asyncio.sleep(1)
        assert second.data == b""
        first.stream.close()
        await asyncio.sleep(1)
        assert len(second.data) == 900
        assert memory.used_bytes == 0

    on_server(limits(), main, memory=memory)
