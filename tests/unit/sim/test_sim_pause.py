"""A paused process: none of its code runs, its connections buffer, and overdue timers fire when it resumes."""

import asyncio

import pytest
from tests.unit.sim.test_sim_network import Collector, in_world

from ottla.env import Env
from ottla.env.network import Stream
from ottla.sim.env import ProcessKilled, SimProcess, World


def now() -> float:
    return asyncio.get_running_loop().time()


class Ticker:
    """A process that notes the time every second, and serves connections."""

    def __init__(self, world: World) -> None:
        self.process: SimProcess = world.process("node", world.new_disk())
        self.ticks: list[float] = []
        self.sides: list[Collector] = []
        self.running = asyncio.create_task(self.process.run(self._main))

    async def _main(self, env: Env) -> None:
        await env.network.listen("node", 1, self._accept)
        while True:
            await asyncio.sleep(1)
            self.ticks.append(now())

    def _accept(self, stream: Stream) -> Collector:
        self.sides.append(Collector(stream))
        return self.sides[-1]


def test_no_timer_of_a_paused_process_fires_and_the_overdue_one_fires_when_it_resumes() -> None:
    async def main(world: World) -> None:
        ticker = Ticker(world)
        await asyncio.sleep(2.5)
        ticker.process.pause()
        await asyncio.sleep(10)
        assert ticker.ticks == pytest.approx([1, 2])
        ticker.process.resume()
        await asyncio.sleep(1.1)
        assert ticker.ticks == pytest.approx([1, 2, 12.5, 13.5])

    in_world(main)


def test_overdue_timers_fire_in_the_order_of_their_times() -> None:
    async def main(world: World) -> None:
        process = world.process("node", world.new_disk())
        fired: list[int] = []

        async def start(env: Env) -> None:
            for delay in (3, 1, 2):
                asyncio.get_running_loop().call_later(delay, fired.append, delay)

        await process.run(start)
        process.pause()
        await asyncio.sleep(5)
        assert fired == []
        process.resume()
        await asyncio.sleep(0.001)
        assert fired == [1, 2, 3]

    in_world(main)


def test_a_cancelled_timer_of_a_paused_process_does_not_fire() -> None:
    async def main(world: World) -> None:
        process = world.process("node", world.new_disk())
        fired: list[int] = []

        async def start(env: Env) -> list[asyncio.TimerHandle]:
            return [asyncio.get_running_loop().call_later(1, fired.append, number) for number in range(2)]

        timers = await process.run(start)
        process.pause()
        await asyncio.sleep(5)
        timers[0].cancel()
        process.resume()
        await asyncio.sleep(5)
        assert fired == [1]

    in_world(main)


def test_the_connections_of_a_paused_process_stay_open_and_buffer() -> None:
    async def main(world: World) -> None:
        ticker = Ticker(world)
        await asyncio.sleep(0.1)
        made: list[Collector] = []

        def make(stream: Stream) -> Collector:
            made.append(Collector(stream))
            return made[-1]

        await world.network.host("client").connect("node", 1, make)
        ticker.process.pause()
        made[0].stream.send([b"hello"])
        # The kernel of the paused process completes the handshake of new connections.
        await world.network.host("client").connect("node", 1, make)
        made[1].stream.send([b"you"])
        await asyncio.sleep(30)
        assert [bytes(side.data) for side in ticker.sides] == [b""]
        assert [side.errors for side in made] == [[], []]
        ticker.process.resume()
        await asyncio.sleep(0.1)
        assert [bytes(side.data) for side in ticker.sides] == [b"hello", b"you"]

    in_world(main)


def test_work_of_another_process_that_wakes_a_paused_task_waits_for_the_resume() -> None:
    async def main(world: World) -> None:
        process = world.process("node", world.new_disk())
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        got: list[float] = []

        async def wait(env: Env) -> None:
            await answer
            got.append(now())

        running = asyncio.create_task(process.run(wait))
        await asyncio.sleep(1)
        process.pause()
        await asyncio.sleep(0)
        answer.set_result(1)
        await asyncio.sleep(1)
        assert got == []
        process.resume()
        await running
        assert got == [2]

    in_world(main)


@pytest.mark.parametrize("is_power_loss", [False, True])
def test_a_paused_process_can_be_killed(is_power_loss: bool) -> None:
    async def main(world: World) -> None:
        ticker = Ticker(world)
        await asyncio.sleep(1.5)
        ticker.process.pause()
        await asyncio.sleep(1)
        await (ticker.process.lose_power() if is_power_loss else ticker.process.kill())
        with pytest.raises(ProcessKilled):
            await ticker.running
        await asyncio.sleep(5)
        assert len(ticker.ticks) == 1

    in_world(main)
