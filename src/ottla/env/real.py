"""The `Env` of the real machine."""

from random import SystemRandom

from ottla.env import Env
from ottla.env.clock import SystemClock
from ottla.env.processes import ChildProcesses
from ottla.env.real_disk import RealDisk
from ottla.env.real_network import RealNetwork
from ottla.env.threads import RealThreads

_IO_THREADS = 4


def real_env() -> Env:
    return Env(
        SystemClock(),
        RealDisk(),
        RealNetwork(),
        RealThreads(_IO_THREADS),
        SystemRandom(),
        ChildProcesses(),
    )
