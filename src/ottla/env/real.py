"""The machine as an `Env`."""

from random import SystemRandom

from ottla.env import Env
from ottla.env.clock import SystemClock
from ottla.env.processes import ChildProcesses
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import RealNetwork
from ottla.env.workers import ThreadWorkers

_WORKER_THREADS = 4


def real_env() -> Env:
    return Env(
        SystemClock(),
        RealDisk(),
        RealNetwork(),
        ThreadWorkers(_WORKER_THREADS),
        SystemRandom(),
        ChildProcesses(),
    )
