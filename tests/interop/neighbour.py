"""A well-behaved client beside a hostile one. It measures how much the attack affects other clients."""

import threading
import time
from types import TracebackType
from typing import Self

from tests.interop.brokers import RunningBroker
from tests.interop.librdkafka import wait_until
from tests.interop.wire import WireClient, batch, produce_error, produce_request, record

WAIT_S_MAX = 1.0
PAUSE_S = 0.01


class Neighbour:
    """`with Neighbour(broker, topic)`: produces one record after the other until the block ends.

    The block fails if a request failed, or took longer than `wait_s_max`. The broker's memory is measured before, at
    its peak, and after.
    """

    def __init__(self, broker: RunningBroker, topic: str, wait_s_max: float = WAIT_S_MAX) -> None:
        self._broker = broker
        self._topic = topic
        self._wait_s_max = wait_s_max
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neighbour")
        self.longest_wait_s = 0.0
        self.requests = 0
        self.errors: list[str] = []
        self.before_kb = self.peak_kb = self.after_kb = 0

    def __enter__(self) -> Self:
        self.before_kb = self.peak_kb = self._broker.memory_kb()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopped.set()
        self._thread.join()
        self.after_kb = self._broker.memory_kb()
        if kind is None:
            self._check()

    def wait_for_requests(self, requests: int = 20) -> None:
        """Waits until that many more requests have succeeded, or one has failed."""
        enough = self.requests + requests
        wait_until(lambda: self.requests >= enough or bool(self.errors), "the neighbour is not served")

    def _check(self) -> None:
        print(
            f"neighbour: {self.requests} requests, longest wait {self.longest_wait_s:.3f} s; memory before "
            f"{self.before_kb} kB, peak {self.peak_kb} kB, after {self.after_kb} kB"
        )
        assert not self.errors, self.errors
        assert self.requests > 0
        assert self.longest_wait_s < self._wait_s_max, self._broker.log_tail()

    def _run(self) -> None:
        one_record = produce_request(self._topic, batch(record(b"neighbour")))
        try:
            with WireClient(self._broker.bootstrap, timeout_s=120.0) as client:
                while not self._is_stopped.wait(PAUSE_S):
                    began = time.monotonic()
                    code = produce_error(client.ask(one_record), self._topic)
                    self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - began)
                    self.requests += 1
                    if code:
                        self.errors.append(f"produce failed with error {code}")
                    self.peak_kb = max(self.peak_kb, self._broker.memory_kb())
        except (OSError, EOFError) as error:
            self.errors.append(repr(error))
