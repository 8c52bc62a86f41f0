"""Sends the metrics that clients push on to a collector of OpenTelemetry, by OTLP/HTTP.

The collector may be slow, hang or answer anything: the broker does not wait for it. Pushes are sent one after the other
in a thread of their own, in a short queue; what does not fit is dropped and counted.
"""

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from ottla.env.http_post import post

if TYPE_CHECKING:
    from ottla.broker.background_tasks import BackgroundTasks
    from ottla.env.threads import Threads

logger = logging.getLogger("ottla.telemetry")

# A collector takes milliseconds for a push. One that needs longer for all of these does not keep up.
QUEUE_MAX = 100
QUEUE_BYTES_MAX = 16 << 20
TIMEOUT_S = 10.0  # for the whole exchange
_HEADERS = {"Content-Type": "application/x-protobuf"}


class OtlpForwarder:
    def __init__(self, url: str, threads: "Threads", tasks: "BackgroundTasks") -> None:
        self.dropped = 0  # pushes that were not sent
        self._url = url
        self._threads = threads
        self._tasks = tasks
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._is_sending = False
        self._is_reported = False

    def forward(self, metrics: bytes) -> None:
        """Sends MetricsData, which has the same bytes as a request to export metrics."""
        if len(self._queue) >= QUEUE_MAX or self._queued_bytes + len(metrics) > QUEUE_BYTES_MAX:
            self._drop(f"{len(self._queue)} pushes with {self._queued_bytes} bytes wait already")
            return
        self._queue.append(metrics)
        self._queued_bytes += len(metrics)
        if not self._is_sending:
            self._is_sending = True
            self._tasks.start(self._send_all())

    def _drop(self, reason: object) -> None:
        self.dropped += 1
        if not self._is_reported:
            logger.warning(
                "metrics of clients cannot be sent to %s (ottla.telemetry.otlp.url): %s", self._url, reason
            )
        self._is_reported = True  # until the collector takes all again

    async def _send_all(self) -> None:
        try:
            while self._queue:
                metrics = self._queue.popleft()
                self._queued_bytes -= len(metrics)
                await self._send(metrics)
        finally:
            self._is_sending = False

    async def _send(self, metrics: bytes) -> None:
        send = partial(post, self._url, metrics, _HEADERS, TIMEOUT_S)
        try:
            await self._threads.run_detached(send)
        except (OSError, ValueError) as error:
            self._drop(error)
        else:
            if not self._queue:
                self._is_reported = False
