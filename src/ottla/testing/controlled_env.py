"""The real machine, with a clock, a disk and a network that tests control."""

import dataclasses

from ottla.env import Env
from ottla.env.real import real_env
from ottla.testing.controlled_disk import ControlledDisk, Volume
from ottla.testing.controlled_network import ControlledNetwork
from ottla.testing.time import AdvancedTime, AdvancingClock


def controlled_env(time: AdvancedTime, volume: Volume, network: ControlledNetwork | None = None) -> Env:
    env = dataclasses.replace(real_env(), clock=AdvancingClock(time), disk=ControlledDisk(volume))
    return env if network is None else dataclasses.replace(env, network=network)
