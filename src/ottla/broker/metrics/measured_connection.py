"""A connection that also measures how long requests wait to be served, and how long responses take to be sent."""

from collections.abc import Callable
from typing import Any

from ottla.broker.connection import ClientConnection
from ottla.broker.metrics.request_times import RequestRun, RequestTimes


class MeasuredConnection(ClientConnection):
    def __init__(self, monotonic_ns: Callable[[], int], *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._monotonic_ns = monotonic_ns
        # While requests wait nothing is read. So all that wait have arrived with the last read.
        self.received_ns = 0
        # `run` is the last one of the unsent responses; it may be empty. Responses that came later are not in runs:
        # times of their API, when the request arrived, when the response was ready.
        self.run = RequestRun(0, 0)
        self.late: list[tuple[RequestTimes, int, int]] = []
        self._ended_runs: list[RequestRun] = []
        self._send_began_ns = 0

    def received(self, count: int) -> None:
        self.received_ns = now_ns = self._monotonic_ns()
        self.received_bytes += count
        run = self.run
        if not run.count:
            run.arrived_ns = run.began_ns = run.ended_ns = now_ns
        super().received(count)

    def end_run(self, now_ns: int) -> None:
        """What follows at `now_ns` is not of the same run."""
        if self.run.count:
            self._ended_runs.append(self.run)
            self.run = RequestRun(now_ns, self.received_ns)
        else:
            self.run.restart(now_ns, self.received_ns)

    def drained(self) -> None:
        self._sent()
        super().drained()

    def _flush(self) -> None:
        self._send_began_ns = self._monotonic_ns()
        super()._flush()
        if not self._is_blocked:
            self._sent()

    def _sent(self) -> None:
        began_ns, now_ns, run = self._send_began_ns, self._monotonic_ns(), self.run
        if run.count:
            run.sent(began_ns, now_ns)
            run.count = run.size = run.ends_ns = 0
        run.began_ns = run.ended_ns = now_ns
        run.arrived_ns = self.received_ns
        if self._ended_runs:
            for ended in self._ended_runs:
                ended.sent(began_ns, now_ns)
            self._ended_runs.clear()
        if self.late:
            for times, arrived_ns, ready_ns in self.late:
                times.sent(arrived_ns, began_ns - ready_ns, now_ns - began_ns, now_ns)
            self.late.clear()
