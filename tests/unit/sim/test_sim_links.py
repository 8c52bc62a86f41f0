"""The faults of the links between simulated hosts: cuts in one direction, latency, loss, resets of one link."""

import asyncio

import pytest
from tests.unit.sim.test_sim_network import Collector, in_world, pair

from ottla.env.network import Stream
from ottla.sim.env import World
from ottla.sim.links import GIVE_UP_S


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_link_that_is_cut_one_way_still_carries_bytes_the_other_way() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        world.network.cut("client", "server")
        client.stream.send([b"lost"])
        server.stream.send([b"arrives"])
        await asyncio.sleep(10)
        assert (bytes(client.data), bytes(server.data)) == (b"arrives", b"")
        world.network.heal("client", "server")
        await server.until(lambda side: bytes(side.data) == b"lost")

    in_world(main)


def test_a_sender_whose_acks_are_cut_off_sends_one_window_at_most() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        world.network.cut("client", "server")
        window = world.network.profile.window_bytes
        assert not server.stream.send([bytes(3 * window)])
        await asyncio.sleep(10)
        assert len(client.data) == window
        world.network.heal()
        await client.until(lambda side: len(side.data) == 3 * window)

    in_world(main)


def test_a_connect_needs_both_directions() -> None:
    async def main(world: World) -> None:
        await world.network.host("server").listen("server", 1, Collector)
        world.network.cut("server", "client")
        with pytest.raises(TimeoutError):
            await world.network.host("client").connect("server", 1, Collector)
        world.network.heal()
        await world.network.host("client").connect("server", 1, Collector)

    in_world(main)


def test_healing_one_link_leaves_the_others_cut() -> None:
    async def main(world: World) -> None:
        world.network.partition("a", "b")
        world.network.partition("a", "c")
        world.network.heal("b", "a")
        assert not world.network.is_cut("a", "b")
        assert not world.network.is_cut("b", "a")
        assert world.network.is_cut("a", "c")
        assert world.network.is_cut("c", "a")

    in_world(main)


def test_a_slow_link_delays_every_chunk() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        world.network.slow("server", "client", 500)
        before = now()
        client.stream.send([b"x"])
        await server.until(lambda side: bool(side.data))
        assert 0.5 <= now() - before < 0.6

    in_world(main)


def test_lost_segments_delay_a_stream_and_keep_its_order() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        world.network.lose("client", "server", 0.3)
        sent = bytes(range(256)) * 100
        before = now()
        client.stream.send([sent])
        await server.until(lambda side: len(side.data) == len(sent))
        assert bytes(server.data) == sent
        assert now() - before >= 0.2

    in_world(main)


def test_a_segment_that_is_always_lost_resets_the_connection() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        world.network.lose("client", "server", 1.0)
        before = now()
        client.stream.send([b"x"])
        await client.until(lambda side: bool(side.errors))
        assert now() - before == pytest.approx(GIVE_UP_S)
        assert isinstance(client.errors[0], ConnectionResetError)
        await server.until(lambda side: bool(side.errors))
        assert bytes(server.data) == b""

    in_world(main)


def test_a_message_waits_for_a_cut_link_and_fails_if_it_is_always_lost() -> None:
    async def main(world: World) -> None:
        network = world.network
        network.cut("a", "b")
        await network.carry("b", "a")
        message = asyncio.create_task(network.carry("a", "b"))
        await asyncio.sleep(100)
        assert not message.done()
        network.heal()
        await message
        network.lose("a", "b", 1.0)
        with pytest.raises(ConnectionResetError, match="no ACK"):
            await network.carry("a", "b")

    in_world(main)


def test_the_reset_of_a_link_leaves_other_connections_open() -> None:
    async def main(world: World) -> None:
        client, server = await pair(world)
        others: list[Collector] = []

        def accept(stream: Stream) -> Collector:
            others.append(Collector(stream))
            return others[-1]

        await world.network.host("third").listen("third", 1, accept)
        await world.network.host("client").connect("third", 1, accept)
        world.network.reset_link("server", "client")
        await client.until(lambda side: bool(side.errors))
        await server.until(lambda side: bool(side.errors))
        assert [side.errors for side in others] == [[], []]

    in_world(main)


def test_a_killed_process_behind_a_cut_link_is_not_noticed() -> None:
    async def main(world: World) -> None:
        client, _server = await pair(world)
        world.network.cut("server", "client")
        world.network.crash("server", silent=False)
        await asyncio.sleep(10)
        assert client.errors == []

    in_world(main)
