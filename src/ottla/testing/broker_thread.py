"""Runs a broker in a thread with an event loop of its own, so that tests may block.

A thread and not a process: it starts sooner, a test can reach into the broker (faults, time), and no process is left
when that of the test ends, however it ends.
"""

import asyncio
import concurrent.futures
import contextlib
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.broker.node import Broker
from ottla.model.config import BrokerConfig
from ottla.testing.controlled_disk import Volume
from ottla.testing.controlled_env import controlled_env
from ottla.testing.errors import BrokerStoppedError
from ottla.testing.time import AdvancedTime, AdvancingLoop

T = TypeVar("T")
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 60.0
_CALL_TIMEOUT_S = 60.0


class BrokerThread:
    """Serves when the constructor returns, which raises whatever `Broker.start` raises.

    Every method raises TimeoutError, with the stack of the broker's thread, if the broker does not respond.
    """

    def __init__(self, config: BrokerConfig, time: AdvancedTime, volume: Volume) -> None:
        self._config = config
        self._volume = volume
        self._time = time
        self._started: concurrent.futures.Future[Broker] = concurrent.futures.Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run, name="ottla-broker", daemon=True)
        self._thread.start()
        try:
            self.broker = self._result(self._started, _START_TIMEOUT_S, "did not start")
        except BaseException:  # also Ctrl-C
            with contextlib.suppress(TimeoutError):  # the reason is the one that is raised
                self.stop()
            raise

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def address(self) -> tuple[str, int]:
        return self.broker.address

    def call(self, function: "Callable[[Broker], Awaitable[T]]") -> T:
        """Runs a coroutine function on the broker's event loop and returns its result."""

        async def run() -> T:
            return await function(self.broker)

        if self._loop is None or not self.is_running:
            raise BrokerStoppedError("the broker has stopped")
        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return self._result(future, _CALL_TIMEOUT_S, "did not complete what the test asked of it")
        finally:
            future.cancel()  # no effect if it is done

    def stop(self) -> None:
        """A clean stop, or the end of a start. Does nothing if the broker has stopped."""
        self._is_stopped = True
        loop, task = self._loop, self._task
        if loop is not None and task is not None:
            try:
                loop.call_soon_threadsafe(task.cancel)
            except RuntimeError:  # the loop is closed
                pass
        self._thread.join(_STOP_TIMEOUT_S)
        if self.is_running:
            raise self._timeout(
                _STOP_TIMEOUT_S, "did not stop, and has its port and its data directory still"
            )

    def _result(self, future: "concurrent.futures.Future[T]", timeout_s: float, what: str) -> T:
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():  # it is the result
                raise
            raise self._timeout(timeout_s, what) from None

    def _timeout(self, timeout_s: float, what: str) -> TimeoutError:
        frame = sys._current_frames().get(self._thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else "it has ended by now\n"
        return TimeoutError(
            f"the broker {what} within {timeout_s:g} s. Check whether code of the test, such as a fault, blocks the "
            f"broker's thread, and whether the machine is overloaded. The thread is here:\n{stack}"
        )

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: AdvancingLoop(self._time)) as runner:
                runner.run(self._serve())
        except asyncio.CancelledError:
            pass
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            if not self._started.done():
                self._started.set_exception(BrokerStoppedError("the broker was stopped before it served"))

    async def _serve(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._is_stopped:
            return
        env = controlled_env(self._time, self._volume)
        try:
            broker = await Broker.start(self._config, env)
            self._started.set_result(broker)
            try:
                await asyncio.wait((broker.failed,))
            finally:
                await broker.stop()
        finally:
            env.threads.close()
