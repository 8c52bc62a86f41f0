"""The metrics that clients have pushed, as families of Prometheus. Their number is bounded, and old ones are forgotten.

Nothing here knows the time: it is an argument. The names and labels of a push are made in a thread (`series_of`), so
that the event loop only has to look them up.
"""

import re
from collections import Counter
from collections.abc import Iterator
from sys import getsizeof
from typing import NamedTuple

from ottla.metrics.family import Family, Kind
from ottla.metrics.otlp import PushedMetrics, PushedSample
from ottla.metrics.text import labels, line

CLIENTS_MAX = 1000
SERIES_MAX = 20_000
SERIES_PER_CLIENT_MAX = 500
FAMILIES_MAX = 500
# Of all names and labels in memory. A series of Kafka's clients has 300 to 400 bytes, so that 20,000 of them fit twice.
BYTES_MAX = 16 << 20
_EXPIRES_AFTER_INTERVALS = 3
# Of the metrics of a broker, which a client must not be able to forge, and of those that Prometheus adds itself.
RESERVED_PREFIXES = ("kafka_", "ottla_", "process_", "scrape_")
_RESERVED_NAMES = frozenset({"up"})
_NO_NAME = re.compile(r"[^a-z0-9_]+")

Series = tuple[str, str]  # the name of the family, the labels as text


class PushedValue(NamedTuple):
    """`is_delta`: the value is an increase. `size` is that of the name and the labels in memory."""

    value: float
    is_delta: bool
    size: int


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
        size = getsizeof(name) + getsizeof(series[1])
        values[series] = PushedValue(before + sample.value, sample.is_delta, size)
    return PushedSeries(instance_id, values, families, pushed.dropped, pushed.limits)


def _labels_of(sample: PushedSample, own: dict[str, str]) -> str:
    """In one order, so that the same labels are the same series."""
    given = {_NO_NAME.sub("_", key.lower()): value for key, value in sample.labels}
    return labels(**{name: value for name, value in sorted(_valid(given)) if name not in own}, **own)


class _Client:
    def __init__(self) -> None:
        self.values: dict[Series, float] = {}
        self.size = 0
        self.expires_ms = 0


class ClientSeries:
    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self.pushes = 0
        self.dropped = 0  # samples beyond a limit
        self._clients: dict[str, _Client] = {}  # by instance id
        self._family_sizes: Counter[str] = Counter()  # how many series each family has
        self._series = 0
        self._size = 0

    @property
    def clients(self) -> int:
        return len(self._clients)

    def add(self, push: PushedSeries, interval_ms: int, now_ms: int) -> set[str]:
        """Returns the limits that the push has exceeded."""
        self.expire(now_ms)
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
                family = push.families[series[0]]
                if limit := self._limit_of(client, family, pushed.size):
                    self.dropped += 1
                    limits.add(limit)
                    continue
                self._count_series(client, family, pushed.size)
                before = 0
            client.values[series] = before + pushed.value if pushed.is_delta else pushed.value
        return limits

    def expire(self, now_ms: int) -> None:
        for instance_id in [key for key, client in self._clients.items() if client.expires_ms <= now_ms]:
            client = self._clients.pop(instance_id)
            self._series -= len(client.values)
            self._size -= client.size
            for name, count in Counter(name for name, _ in client.values).items():
                self._family_sizes[name] -= count
                if not self._family_sizes[name]:
                    del self._family_sizes[name], self.families[name]

    def items(self) -> list[tuple[Series, float]]:
        return [item for client in self._clients.values() for item in client.values.items()]

    def _limit_of(self, client: _Client, family: Family, size: int) -> str:
        """The limit that leaves no room for a series, if there is one."""
        if len(client.values) >= SERIES_PER_CLIENT_MAX:
            return f"more than {SERIES_PER_CLIENT_MAX} series of a client"
        if self._series >= SERIES_MAX:
            return f"more than {SERIES_MAX} series"
        if self._size + size > BYTES_MAX:
            return f"more than {BYTES_MAX} bytes of names and labels"
        if family.name in self.families:
            return ""
        if family.name.startswith(RESERVED_PREFIXES) or family.name in _RESERVED_NAMES:
            return "a name of the broker's own metrics"
        if _other_kind(family) in self.families:
            return "a counter and a gauge of the same name"
        return f"more than {FAMILIES_MAX} names" if len(self.families) >= FAMILIES_MAX else ""

    def _count_series(self, client: _Client, family: Family, size: int) -> None:
        self.families.setdefault(family.name, family)
        self._family_sizes[family.name] += 1
        self._series += 1
        self._size += size
        client.size += size


def _other_kind(family: Family) -> str:
    """The name of a family with the same base name, from which OpenMetrics could not tell this one."""
    return family.base_name if family.kind is Kind.COUNTER else f"{family.name}_total"


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
