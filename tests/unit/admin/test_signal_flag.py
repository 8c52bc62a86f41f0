"""A flag that a signal handler sets while the main thread waits for it."""

import signal
import threading
import time

from ottla.admin.signal_flag import SignalFlag


def test_a_signal_that_comes_while_the_main_thread_waits_ends_the_wait() -> None:
    flag = SignalFlag()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: flag.set())
    sender = threading.Thread(
        target=lambda: [signal.pthread_kill(main, signal.SIGUSR1) for _ in range(1000)], daemon=True
    )
    main = threading.main_thread().ident or 0
    try:
        sender.start()
        assert flag.wait(30)
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_wait_for_a_flag_that_is_not_set_ends_with_its_time() -> None:
    started_s = time.monotonic()
    assert not SignalFlag().wait(0.05)
    assert time.monotonic() - started_s >= 0.05
