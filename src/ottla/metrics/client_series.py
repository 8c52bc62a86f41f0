"""The metrics that clients have pushed, as families of Prometheus. Their number is bounded, and old ones are forgotten.

Nothing here knows the time: it is an argument. The names and labels of a push are made in a thread (`series_of`), so
that the event loop only has to look them up.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from ottla.metrics.family import Family, Kind
from ottla.metrics.otlp import PushedMetrics, PushedSample
from ottla.metrics.text import labels, line

CLIENTS_MAX = 1000
SERIES_MAX = 20_000
SERIES_PER_CLIENT_MAX = 500
FAMILIES_MAX = 500
_EXPIRES_AFTER_INTERVALS = 3
_NO_NAME = re.compile(r"[^a-z0-9_]+")

Series = tuple[str, str]  # the name of the family, the labels as text


class PushedValue(NamedTuple):
    """`is_delta`: the value is an increase."""

    value: float
    is_delta: bool


class PushedSeries(NamedTuple):
    """A push, as it is added to the series of its client."""

    instance_id: str
    values: dict[Series, PushedValue]
    families: dict[str, Family]  # of the values, by name
    dropped: int
    limits: frozenset[str]


def series_of(pushed: PushedMetrics, instance_id: str, client_id: str) -> PushedSeries:
    """Takes some milliseconds for a long push: run it in a thread. The dictionary also hashes all names and labels."""
    own = {"client_id": client_id, "client_instance_id": instance_id}
    values: dict[Series, PushedValue] = {}
    families: dict[str, Family] = {}
    names: dict[tuple[str, bool], str] = {}
    for sample in pushed.samples:
        key = (sample.name, sample.is_counter)
        name = names.get(key)
        if name is None:
            name = names[key] = metric_name(sample.name, is_counter=sample.is_counter)
        if name not in families:
            kind = Kind.COUNTER if sample.is_counter else Kind.GAUGE
            families[name] = Family(name, kind, f"{sample.name} of clients (KIP-714).")
        series = (name, _labels_of(sample, own))
        before = values[series].value if sample.is_delta and series in values else 0
        values[series] = PushedValue(before + sample.value, sample.is_delta)
    return PushedSeries(instance_id, values, families, pushed.dropped, pushed.limits)


def _labels_of(sample: PushedSample, own: dict[str, str]) -> str:
    """In one order, so that the same labels are the same series."""
    given = {_NO_NAME.sub("_", key.lower()): value for key, value in sample.labels}
    return labels(**{name: value for name, value in sorted(_valid(given)) if name not in own}, **own)


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

    def add(self, push: PushedSeries, interval_ms: int, now_ms: int) -> set[str]:
        """Returns the limits that the push has exceeded."""
        self.pushes += 1
        self.dropped += push.dropped
        limits = set(push.limits)
        client = self._clients.get(push.instance_id)
        if client is None:
            if len(self._clients) >= CLIENTS_MAX:
                self.dropped += len(push.values)
                return limits | {f"more than {CLIENTS_MAX} clients"}
            client = self._clients[push.instance_id] = _Client()
        client.expires_ms = now_ms + _EXPIRES_AFTER_INTERVALS * interval_ms
        for series, pushed in push.values.items():
            before = client.values.get(series)
            if before is None:
                if limit := self._add_series(client, push.families[series[0]]):
                    self.dropped += 1
                    limits.add(limit)
                    continue
                before = 0
            client.values[series] = before + pushed.value if pushed.is_delta else pushed.value
        return limits

    def expire(self, now_ms: int) -> None:
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._series -= len(self._clients.pop(instance_id).values)
        if not self._clients:
            self.families.clear()

    def items(self) -> list[tuple[Series, float]]:
        return [item for client in self._clients.values() for item in client.values.items()]

    def _add_series(self, client: _Client, family: Family) -> str:
        """Makes room for a series. Returns the limit that leaves none, if there is one."""
        if len(client.values) >= SERIES_PER_CLIENT_MAX:
            return f"more than {SERIES_PER_CLIENT_MAX} series of a client"
        if self._series >= SERIES_MAX:
            return f"more than {SERIES_MAX} series"
        if family.name not in self.families:
            if len(self.families) >= FAMILIES_MAX:
                return f"more than {FAMILIES_MAX} names"
            self.families[family.name] = family
        self._series += 1
        return ""


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
