"""The metrics that clients have pushed, as families of Prometheus. Their number is bounded, and old ones are forgotten.

Nothing here knows the time: it is an argument.
"""

import re
from collections.abc import Iterable, Iterator

from ottla.metrics.family import Family, Kind
from ottla.metrics.otlp import PushedSample
from ottla.metrics.text import labels, line

CLIENTS_MAX = 1000
SERIES_MAX = 20_000
SERIES_PER_CLIENT_MAX = 500
FAMILIES_MAX = 500
_EXPIRES_AFTER_INTERVALS = 3
_NO_NAME = re.compile(r"[^a-z0-9_]+")

Series = tuple[str, str]  # the name of the family, the labels as text


class _Client:
    def __init__(self) -> None:
        self.values: dict[Series, float] = {}
        self.expires_ms = 0


class ClientSeries:
    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.pushes = 0
        self.dropped = 0  # samples beyond a limit
        self._clients: dict[str, _Client] = {}  # by instance id
        self._series = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    def add(
        self, instance_id: str, client_id: str, samples: Iterable[PushedSample], interval_ms: int, now_ms: int
    ) -> None:
        self.pushes += 1
        client = self._clients.get(instance_id)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                self.dropped += sum(1 for _ in samples)
                return
            client = self._clients[instance_id] = _Client()
        client.expires_ms = now_ms + _EXPIRES_AFTER_INTERVALS * interval_ms
        for sample in samples:
            self._add(client, sample, {"client_id": client_id, "client_instance_id": instance_id})

    def expire(self, now_ms: int) -> None:
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._series -= len(self._clients.pop(instance_id).values)
        if not self._clients:
            self.families.clear()

    def items(self) -> list[tuple[Series, float]]:
        return [item for client in self._clients.values() for item in client.values.items()]

    def _add(self, client: _Client, sample: PushedSample, own_labels: dict[str, str]) -> None:
        name = metric_name(sample.name, is_counter=sample.is_counter)
        family = self.families.get(name)
        kind = Kind.COUNTER if sample.is_counter else Kind.GAUGE
        if family is None and len(self.families) < FAMILIES_MAX:
            text = f"{sample.name} of clients (KIP-714)."
            family = self.families[name] = Family(name, kind, text)
        given = {_NO_NAME.sub("_", key.lower()): value for key, value in sample.labels}
        series = (name, labels(**(dict(_valid(given)) | own_labels)))
        is_new = series not in client.values
        has_room = self._series < SERIES_MAX and len(client.values) < SERIES_PER_CLIENT_MAX
        if family is None or family.kind is not kind or (is_new and not has_room):
            self.dropped += 1
            return
        self._series += is_new
        before = client.values.get(series, 0) if sample.is_delta else 0
        client.values[series] = before + sample.value


def _valid(given: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        if name and not name[0].isdigit() and not name.startswith("__"):
            yield name, value


def metric_name(name: str, *, is_counter: bool) -> str:
    """`org.apache.kafka.producer.record.send.total` is `org_apache_kafka_producer_record_send_total`."""
    found = _NO_NAME.sub("_", name.lower()).strip("_") or "unnamed"
    if found[0].isdigit():
        found = f"_{found}"
    # Of a gauge, Prometheus would take the suffix for that of a counter.
    base = found.removesuffix("_total")
    return f"{base}_total" if is_counter else (base if base == found else f"{base}_count_now")


def sample_line(series: Series, value: float) -> str:
    return line(series[0], series[1], value)
