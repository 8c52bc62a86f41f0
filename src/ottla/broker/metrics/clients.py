"""Metrics that clients push to this broker (KIP-714), and their way to a collector of OpenTelemetry."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metrics.forwarder import OtlpForwarder
from ottla.metrics import Collection, Collector, Family, Kind, line
from ottla.metrics.client_series import ClientSeries, PushedSeries, Series, sample_line, series_of
from ottla.metrics.otlp import RESOURCES_MAX, OtlpError, read_metrics, with_resource_attributes
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
_NOT_FORWARDED = f"more than {RESOURCES_MAX} resources in a push, or too many fields to forward it"


class ClientMetrics(Collector):
    families: tuple[Family, ...] = FAMILIES

    def __init__(self, services: "NodeServices", thread: "SerialThread") -> None:
        self._services = services
        self._thread = thread
        self._series = ClientSeries()
        url = services.config.get_str("ottla.telemetry.otlp.url")
        self._forwarder = OtlpForwarder(url, services.env.threads, services.tasks) if url else None
        self._reported_limits: set[str] = set()

    async def receive(self, instance: "ClientInstance", data: bytes) -> None:
        """Raises KafkaError if `data` is malformed."""
        labels = instance.labels
        push, forwarded = await self._thread.run(
            partial(_read, data, labels, is_forwarded=self._forwarder is not None)
        )
        now_ms = self._services.env.clock.monotonic_ms()
        self._report(self._series.add(push, instance.subscription.interval_ms, now_ms), labels)
        if self._forwarder is not None and forwarded:
            self._forwarder.forward(forwarded)

    def _report(self, limits: "Set[str]", labels: "ClientLabels") -> None:
        """Each limit once: clients that exceed it do so with each push."""
        for limit in sorted(limits - self._reported_limits):
            logger.warning(
                "metrics of clients are dropped: %s (first by client %r, instance %s); see "
                "ottla_client_metrics_dropped_total",
                limit, labels.client_id, labels.client_instance_id,
            )  # fmt: skip
            self._reported_limits.add(limit)

    async def start(self) -> "_Clients":
        self._series.expire(self._services.env.clock.monotonic_ms())
        not_forwarded = 0 if self._forwarder is None else self._forwarder.dropped
        collection = _Clients(self._series, not_forwarded)
        self.families = collection.families
        return collection


def _read(data: bytes, labels: "ClientLabels", *, is_forwarded: bool) -> tuple[PushedSeries, bytes]:
    """The series of a push, and what is forwarded. Runs in a thread. Raises KafkaError if `data` is malformed."""
    try:
        push = series_of(read_metrics(data), labels.client_instance_id, labels.client_id)
    except OtlpError as error:
        raise KafkaError(ErrorCode.invalid_record, str(error)) from error
    if not is_forwarded:
        return push, b""
    try:
        return push, with_resource_attributes(data, labels._asdict())
    except OtlpError:
        return push._replace(dropped=push.dropped + 1, limits=push.limits | {_NOT_FORWARDED}), b""


class _Clients(Collection[tuple[Series, float]]):
    def __init__(self, series: ClientSeries, not_forwarded: int) -> None:
        self.items = series.items()
        own = tuple(series.families.values())
        self.families = (*FAMILIES, *own)
        self._index = {family.name: index for index, family in enumerate(own)}
        self._written: list[list[str]] = [[] for _ in own]
        self._values = (series.clients, series.pushes, series.dropped + not_forwarded)
        self._nothing = ("",) * len(self.families)

    def collect(self, item: tuple[Series, float]) -> Sequence[str]:
        # Kept until the end: a row for each series would be as wide as there are families.
        self._written[self._index[item[0][0]]].append(sample_line(*item))
        return self._nothing

    def finish(self) -> Sequence[str]:
        values = [line(family.name, "", value) for family, value in zip(FAMILIES, self._values, strict=True)]
        return (*values, *("".join(lines) for lines in self._written))
