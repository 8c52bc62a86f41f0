"""When a worker process rests, and that it does."""

import subprocess
import sys

import pytest

from ottla.env.giving_way import rest_s

# Counts as displaced all the time, works for a tenth of a second, and ends as a worker does.
IN_THE_WAY = """
import itertools, os, time
from ottla.env import giving_way

counter = itertools.count(step=1000)
giving_way._account = lambda: (time.process_time(), next(counter))
giving_way.give_way()
began_s, worked_s = time.monotonic(), time.process_time()
while time.process_time() < worked_s + 0.1:
    pass
print(time.monotonic() - began_s, flush=True)
os._exit(0)
"""


def test_a_worker_that_nobody_displaces_does_not_rest() -> None:
    assert rest_s(worked_s=0.02, displaced=0) == 0
    assert rest_s(worked_s=1, displaced=20) == 0


def test_a_worker_that_is_displaced_rests_longer_than_it_worked() -> None:
    assert rest_s(worked_s=0.02, displaced=12) == pytest.approx(0.06)


def test_it_rests_in_the_midst_of_its_work() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THE_WAY], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.2


# One look comes in the midst of another and has seen more of the work than that, once it goes on.
ONE_IN_ANOTHER = """
import os, signal
from ottla.env import giving_way

seen = iter([(0.0, 0), (0.1, 1000), (0.2, 1000), (0.3, 2000)])

def account():
    taken = next(seen)
    if taken == (0.1, 1000):
        signal.raise_signal(signal.SIGPROF)
    return taken

giving_way._account = account
giving_way.give_way()
signal.raise_signal(signal.SIGPROF)
signal.raise_signal(signal.SIGPROF)
print("still there", flush=True)
os._exit(0)
"""


def test_a_look_in_the_midst_of_another_does_not_end_the_worker() -> None:
    done = subprocess.run([sys.executable, "-c", ONE_IN_ANOTHER], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("still there\n", "", 0)
