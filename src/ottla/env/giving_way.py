"""A worker process that is in somebody's way rests for most of the time; where nobody else wants the processor, never.

A low priority alone does not do: whoever wakes up waits now and then until the worker's turn is over, which with the
timers of usual systems takes milliseconds. The system counts how often it took the processor from this process for
somebody else. So on a machine with processors to spare, or beside an idle broker, the work goes on at full speed.
"""

import resource
import signal
import time

# So much processor time goes by between two looks at that number.
_LOOK_S = 0.02
# Measured on two cores, in a second of work: about 10 beside an idle broker, 500 and more beside 500 records a second
# while other programs ran too. With 200 one client that asks the broker for its state slowed a cleaning down.
_DISPLACED_PER_S = 400
# Bounded, for on a machine that is always busy the work is to be done all the same.
_REST_PER_WORK = 3


def rest_s(worked_s: float, displaced: int) -> float:
    """How long to rest after so much work, during which the processor was taken away `displaced` times."""
    return _REST_PER_WORK * worked_s if displaced > _DISPLACED_PER_S * worked_s > 0 else 0.0


def give_way() -> None:
    """From now on, by a timer of the processor time that this process takes: for its main thread to call."""
    worked_before_s, displaced_before = _account()

    def look(*_: object) -> None:
        # Between two steps of the work, so that it rests with no lock of the system in its hands.
        nonlocal worked_before_s, displaced_before
        worked_s, displaced = _account()
        time.sleep(rest_s(worked_s - worked_before_s, displaced - displaced_before))
        worked_before_s, displaced_before = worked_s, displaced
        signal.setitimer(signal.ITIMER_PROF, _LOOK_S)

    signal.signal(signal.SIGPROF, look)
    # Set anew after each look and not to repeat: a look that the next one interrupts would take back what that one saw.
    signal.setitimer(signal.ITIMER_PROF, _LOOK_S)


def _account() -> tuple[float, int]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nivcsw
