"""The one door through which everything non-deterministic enters: clock, disk, network, workers, randomness.

`ottla.env.real` has the machine; `ottla.sim` makes one from a seed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Not to be imported by a worker process on its way to the disk: it is waited for.
    from random import Random

    from ottla.env.clock import Clock
    from ottla.env.disk import Disk
    from ottla.env.network import Network
    from ottla.env.processes import Processes
    from ottla.env.workers import Workers


@dataclass(frozen=True, slots=True)
class Env:
    clock: "Clock"
    disk: "Disk"
    network: "Network"
    workers: "Workers"
    random: "Random"
    processes: "Processes"
