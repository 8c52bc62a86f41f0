"""Everything non-deterministic that the broker uses: clock, disk, network, threads, randomness, processes.

`ottla.env.real` is the real machine; `ottla.sim` simulates one from a seed.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # A child process imports this package for the disk only. Without these imports it starts sooner.
    from random import Random

    from ottla.env.clock import Clock
    from ottla.env.disk import Disk
    from ottla.env.network import Network
    from ottla.env.processes import Processes
    from ottla.env.threads import Threads


@dataclass(frozen=True, slots=True)
class Env:
    clock: "Clock"
    disk: "Disk"
    network: "Network"
    threads: "Threads"
    random: "Random"
    processes: "Processes"
