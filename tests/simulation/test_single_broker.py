"""The whole real broker on a virtual-time event loop, with a simulated network and a disk that forgets."""

import os
import subprocess
import sys

import pytest
from tests.simulation.seeds import SEEDS

from ottla.sim.env import World, simulate
from ottla.sim.node import PROFILE
from ottla.sim.single_broker import single_broker


@pytest.mark.parametrize("seed", SEEDS)
def test_every_acknowledged_record_is_there_once_and_in_order_whatever_fails(seed: int) -> None:
    worlds: list[World] = []

    async def main(world: World) -> None:
        worlds.append(world)
        await single_broker(world)

    try:
        simulate(main, seed, profile=PROFILE)
    except Exception as error:
        error.add_note(
            "\n".join([f"replay with `python -m ottla.sim --seed {seed}`", *worlds[0].trace.tail(30)])
        )
        raise


def test_a_seed_gives_the_same_run_of_the_whole_broker_under_two_hash_seeds() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "ottla.sim", "--seed", "3"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert "events, trace" in outputs[0]
    assert outputs[0] == outputs[1]
