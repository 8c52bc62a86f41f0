import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from ottla.env.network import Stream
from ottla.sim.env import World, simulate
from ottla.sim.network import NetworkProfile, SimStream

T = TypeVar("T")


class Collector:
    """A receiver that keeps all bytes, with a buffer of an odd size."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.data = bytearray()
        self.chunks: list[int] = []
        self.drains = 0
        self.errors: list[OSError | None] = []
        self.changed = asyncio.Event()
        self._buffer = bytearray(1000)

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None:
        self.data += self._buffer[:count]
        self.chunks.append(count)
        self.changed.set()

    def drained(self) -> None:
        self.drains += 1
        self.changed.set()

    def closed(self, error: OSError | None) -> None:
        self.errors.append(error)
        self.changed.set()

    async def until(self, condition: Callable[["Collector"], bool]) -> None:
        while not condition(self):
            self.changed.clear()
            await self.changed.wait()


async def pair(world: World) -> tuple[Collector, Collector]:
    """The two sides of one connection: client and server."""
    accepted: list[Collector] = []

    def accept(stream: Stream) -> Collector:
        accepted.append(Collector(stream))
        return accepted[-1]

    listener = await world.network.host("server").listen("server", 0, accept)
    made: list[Collector] = []

    def make(stream: Stream) -> Collector:
        made.append(Collector(stream))
        return made[-1]

    await world.network.host("client").connect(*listener.address, make)
    return made[0], accepted[0]


def in_world(
    main: Callable[[World], Awaitable[T]], profile: NetworkProfile | None = None, seed: int = 7
) -> T:
    return simulate(main, seed, profile=profile, step_limit=200_000)


def test_bytes_arrive_in_order_in_chunks_with_latency() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        message = bytes(range(256)) * 100
        before = asyncio.get_running_loop().time()
        client.stream.send([message[:7], message[7:]])
        assert not server.data
        await server.until(lambda side: len(side.data) == len(message))
        assert server.data == message
        assert len(server.chunks) > 10
        assert asyncio.get_running_loop().time() > before

    in_world(main)


def test_send_returns_false_for_a_full_window_and_drained_follows_after_the_peer_reads() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        server.stream.pause_reading()
        assert client.stream.send([bytes(1_000)])
        assert not client.stream.send([bytes(100_000)])
        await asyncio.sleep(60)
        assert client.drains == 0
        assert not server.data
        server.stream.resume_reading()
        await client.until(lambda side: side.drains == 1)
        await server.until(lambda side: len(side.data) == 101_000)

    in_world(main)


def test_the_peer_of_a_closed_side_gets_the_sent_bytes_and_then_one_closed_call() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        client.stream.send([b"farewell"])
        client.stream.close()
        client.stream.close()
        assert client.errors == []
        await server.until(lambda side: bool(side.errors))
        assert server.data == b"farewell"
        await asyncio.sleep(10)
        assert client.errors == server.errors == [None]

    in_world(main)


def test_bytes_sent_to_a_side_that_has_closed_reset_the_connection() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        client.stream.pause_reading()
        server.stream.send([b"unread"])
        server.stream.close()
        await asyncio.sleep(1)
        assert client.errors == []
        client.stream.send([b"hello?"])
        await client.until(lambda side: bool(side.errors))
        assert isinstance(client.errors[0], ConnectionResetError)

    in_world(main)


def test_a_network_partition_delays_bytes_and_loses_none() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        world.network.partition("client", "server")
        client.stream.send([b"patience"])
        await asyncio.sleep(10)
        assert not server.data
        world.network.heal()
        await server.until(lambda side: side.data == b"patience")

    in_world(main)


def test_a_connect_across_a_partition_times_out_unless_it_heals_in_time() -> None:
    async def main(world: World) -> None:
        world.network.partition("client", "server")
        with pytest.raises(TimeoutError, match="client cannot reach server"):
            await world.network.host("client").connect("server", 1, Collector)
        asyncio.get_running_loop().call_later(5, world.network.heal)
        await pair(world)

    in_world(main)


def test_a_connect_without_a_listener_is_refused() -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConnectionRefusedError, match="server:9092"):
            await world.network.host("client").connect("server", 9092, Collector)

    in_world(main)


def test_listening_on_a_used_port_or_a_foreign_address_raises_an_error() -> None:
    async def main(world: World) -> None:
        host = world.network.host("server")
        listener = await host.listen("0.0.0.0", 9092, Collector)
        with pytest.raises(OSError, match="9092"):
            await host.listen("server", 9092, Collector)
        with pytest.raises(OSError, match="other"):
            await host.listen("other", 9092, Collector)
        listener.close()
        await host.listen("server", 9092, Collector)

    in_world(main)


def test_a_reset_closes_both_sides_with_an_error() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        client.stream.send([bytes(500)])
        world.network.reset_streams("server")
        await asyncio.sleep(10)
        for side in (client, server):
            assert [type(error) for error in side.errors] == [ConnectionResetError]
        assert not server.data
        assert client.stream.send([b"late"])

    in_world(main)


def test_random_resets_happen() -> None:
    async def main(world: World) -> None:
        client, _ = await pair(world)
        client.stream.send([bytes(60_000)])
        await client.until(lambda side: bool(side.errors))
        assert isinstance(client.errors[0], ConnectionResetError)

    in_world(main, NetworkProfile(reset_probability=0.5))


@pytest.mark.parametrize("silent", [True, False])
def test_peers_of_a_dead_host_see_a_reset_or_nothing(silent: bool) -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        assert isinstance(server.stream, SimStream)
        world.network.crash("server", silent=silent)
        client.stream.send([b"hello?"])
        await asyncio.sleep(100)
        assert server.errors == []
        assert [type(error) for error in client.errors] == ([] if silent else [ConnectionResetError])
        with pytest.raises(ConnectionRefusedError):
            await world.network.host("client").connect(*client.stream.local_address, Collector)

    in_world(main)
