"""Metrics that clients push to this broker (KIP-714), and their way to a collector of OpenTelemetry."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.metrics import Collection, Collector, Family, Kind, line
from ottla.metrics.client_series import ClientSeries, PushedSeries, Series, sample_line, series_of
from ottla.metrics.otlp import OtlpError, read_metrics, with_resource_attributes
from ottla.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Set

    from ottla.broker.serial_thread import SerialThread
    from ottla.broker.services import NodeServices
    from ottla.core.client_telemetry import ClientInstance, ClientLabels

logger = logging.getLogger("ottla.telemetry")

FAMILIES = (
    Family("ottla_client_metrics_clients", Kind.GAUGE, "Clients whose pushed metrics are exposed."),
    Family("ottla_client_metrics_pushes_total", Kind.COUNTER, "Pushes that were accepted."),
    Family(
        "ottla_client_metrics_dropped_total",
        Kind.COUNTER,
        "Pushed samples beyond a limit, and pushes that could not be forwarded.",
    ),
)
# Pushes that wait for the collector of OpenTelemetry. One more is dropped.
_FORWARDS_MAX = 100
_FORWARD_TIMEOUT_S = 10


class ClientMetrics(Collector):
    families: tuple[Family, ...] = FAMILIES

    def __init__(self, services: "NodeServices", thread: "SerialThread") -> None:
        self._services = services
        self._thread = thread
        self._series = ClientSeries()
        self._url = services.config.get_str("ottla.telemetry.otlp.url")
        self._forwards = 0
        self._failed_forwards = 0
        self._is_reported = False
        self._reported_limits: set[str] = set()

    async def receive(self, instance: "ClientInstance", data: bytes) -> None:
        """Raises KafkaError if `data` is malformed."""
        labels = instance.labels
        push = await self._thread.run(partial(_read, data, labels))
        now_ms = self._services.env.clock.monotonic_ms()
        self._report(self._series.add(push, instance.subscription.interval_ms, now_ms), labels)
        if self._url and data:
            self._forward(labels._asdict(), data)

    def _report(self, limits: "Set[str]", labels: "ClientLabels") -> None:
        """Each limit once: clients that exceed it do so with each push."""
        for limit in sorted(limits - self._reported_limits):
            logger.warning(
                "metrics of clients are dropped: %s (first by client %r, instance %s); see "
                "ottla_client_metrics_dropped_total",
                limit, labels.client_id, labels.client_instance_id,
            )  # fmt: skip
            self._reported_limits.add(limit)

    def _forward(self, attributes: dict[str, str], data: bytes) -> None:
        if self._forwards >= _FORWARDS_MAX:
            self._failed_forwards += 1
            return
        self._forwards += 1
        self._services.tasks.start(self._post(attributes, data))

    async def _post(self, attributes: dict[str, str], data: bytes) -> None:
        try:
            await self._services.env.threads.run_in_background(partial(_post, self._url, attributes, data))
            self._is_reported = False
        except (OSError, ValueError) as error:
            self._failed_forwards += 1
            if not self._is_reported:
                logger.warning(
                    "metrics of clients cannot be sent to %s (ottla.telemetry.otlp.url): %s", self._url, error
                )
            self._is_reported = True  # until it works again
        finally:
            self._forwards -= 1

    async def start(self) -> "_Clients":
        self._series.expire(self._services.env.clock.monotonic_ms())
        collection = _Clients(self._series, self._failed_forwards)
        self.families = collection.families
        return collection


def _read(data: bytes, labels: "ClientLabels") -> PushedSeries:
    """Runs in a thread. Raises KafkaError if `data` is malformed."""
    try:
        return series_of(read_metrics(data), labels.client_instance_id, labels.client_id)
    except OtlpError as error:
        raise KafkaError(ErrorCode.invalid_record, str(error)) from error


def _post(url: str, attributes: dict[str, str], data: bytes) -> None:
    """Runs in a thread. MetricsData has the same bytes as a request to export metrics."""
    from urllib.request import Request, urlopen

    request = Request(
        url,
        with_resource_attributes(data, attributes),
        headers={"Content-Type": "application/x-protobuf"},
        method="POST",
    )
    with urlopen(request, timeout=_FORWARD_TIMEOUT_S) as response:
        response.read()


class _Clients(Collection[tuple[Series, float]]):
    def __init__(self, series: ClientSeries, failed_forwards: int) -> None:
        self.items = series.items()
        own = tuple(series.families.values())
        self.families = (*FAMILIES, *own)
        self._index = {family.name: index for index, family in enumerate(own)}
        self._written: list[list[str]] = [[] for _ in own]
        self._values = (series.clients, series.pushes, series.dropped + failed_forwards)
        self._nothing = ("",) * len(self.families)

    def collect(self, item: tuple[Series, float]) -> Sequence[str]:
        # Kept until the end: a row for each series would be as wide as there are families.
        self._written[self._index[item[0][0]]].append(sample_line(*item))
        return self._nothing

    def finish(self) -> Sequence[str]:
        values = [line(family.name, "", value) for family, value in zip(FAMILIES, self._values, strict=True)]
        return (*values, *("".join(lines) for lines in self._written))
