"""Which metrics clients are asked to push, and whether a push is accepted (KIP-714).

Subscriptions are client-metrics configs: names of metrics, an interval, and which clients they are for. Each client
has an instance id. The id of its subscription changes with the configs, so that the client asks for it again.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.regex import compile_regex
from ottla.records.compression import CODEC_NAMES

DEFAULT_INTERVAL_MS = 300_000
_INSTANCES_MAX = 16_384  # as in Kafka
# A label is kept for each instance, exposed with each series and sent with each push. Kafka has no limit, and a client
# id may have 32,767 bytes. `match` sees what is kept.
LABEL_CHARS_MAX = 255
_ALL = "*"


class ClientLabels(NamedTuple):
    """The labels that a subscription's `match` can select by."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str


class TelemetrySubscription(NamedTuple):
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class ClientInstance:
    """A client that has requested its subscription or pushed. It may send one request in each interval, as in Kafka.

    A push may follow the request for the subscription sooner: a client pushes first after half an interval to one and
    a half, so that the pushes of all clients are spread over the interval. A request that is rejected does not count,
    so that a client whose subscription is unknown can ask for it at once.
    """

    __slots__ = ("_accepted_ms", "_may_push_early", "is_terminating", "labels", "subscription")

    def __init__(self, labels: ClientLabels, subscription: TelemetrySubscription) -> None:
        self.labels = labels
        self.subscription = subscription
        self.is_terminating = False
        self._accepted_ms: int | None = None  # the last request that was accepted
        self._may_push_early = False

    def subscription_changed(self, subscription: TelemetrySubscription) -> None:
        """The interval begins anew, because the client asks and pushes as soon as it learns of the change."""
        self.subscription = subscription
        self._accepted_ms = None

    def subscribe(self, now_ms: int) -> None:
        """Accepts a request for the subscription. Raises KafkaError if the request before it was too short ago."""
        if not self._is_interval_over(now_ms):
            raise self._throttled()
        self._accepted_ms = now_ms
        self._may_push_early = True

    def push(
        self,
        subscription_id: int,
        compression_type: int,
        size: int,
        max_bytes: int,
        *,
        terminating: bool,
        now_ms: int,
    ) -> None:
        """Accepts a push of `size` bytes. Raises KafkaError if it is rejected."""
        self._check_push(subscription_id, compression_type, size, max_bytes, terminating, now_ms)
        self.is_terminating = terminating
        self._accepted_ms = now_ms
        self._may_push_early = False

    def _check_push(
        self,
        subscription_id: int,
        compression_type: int,
        size: int,
        max_bytes: int,
        terminating: bool,
        now_ms: int,
    ) -> None:
        """In Kafka's order: a client that pushes too often does not learn whether the rest is valid."""
        if self.is_terminating:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"client instance {self.labels.client_instance_id} has sent its terminating push already",
            )
        if not (terminating or self._may_push_early or self._is_interval_over(now_ms)):
            raise self._throttled()
        if subscription_id != self.subscription.subscription_id:
            raise KafkaError(
                ErrorCode.unknown_subscription_id,
                f"the subscription is {self.subscription.subscription_id}, not {subscription_id}: request it again",
            )
        if not 0 <= compression_type < len(CODEC_NAMES):
            raise KafkaError(
                ErrorCode.unsupported_compression_type, f"there is no codec with the id {compression_type}"
            )
        if size > max_bytes:
            raise KafkaError(
                ErrorCode.telemetry_too_large,
                f"{size} bytes are more than telemetry.max.bytes={max_bytes}",
            )

    def _is_interval_over(self, now_ms: int) -> bool:
        return self._accepted_ms is None or now_ms - self._accepted_ms >= self.subscription.interval_ms

    def _throttled(self) -> KafkaError:
        return KafkaError(
            ErrorCode.throttling_quota_exceeded,
            f"client instance {self.labels.client_instance_id} sends telemetry requests too often: it may send one "
            f"in {self.subscription.interval_ms} ms",
        )


class ClientTelemetry:
    def __init__(self, max_push_bytes: int) -> None:
        self.max_push_bytes = max_push_bytes
        self._configs: Mapping[str, Mapping[str, str]] = {}
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()  # the last used one is the last

    def configure(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Sets all client-metrics resources, by name. Clients learn of changes at their next push."""
        self._configs = configs
        for instance in self._instances.values():
            subscription = self._subscription_of(instance.labels)
            if subscription != instance.subscription:
                instance.subscription_changed(subscription)

    def subscribe(self, instance_id: UUID, labels: ClientLabels, now_ms: int) -> TelemetrySubscription:
        """Raises KafkaError if the client asks too often."""
        labels = _cut(labels)
        instance = self._instance(instance_id, labels)
        if instance.labels != labels:  # it has connected again
            instance.labels, instance.subscription = labels, self._subscription_of(labels)
        instance.subscribe(now_ms)
        return instance.subscription

    def push(
        self,
        instance_id: UUID | None,
        labels: ClientLabels,
        subscription_id: int,
        compression_type: int,
        size: int,
        *,
        terminating: bool,
        now_ms: int,
    ) -> ClientInstance:
        """Accepts a push of `size` bytes. Raises KafkaError if it is rejected.

        The client may have asked another broker for its subscription, which has the same id here.
        """
        if instance_id is None:
            raise KafkaError(ErrorCode.invalid_request, "a push must name its client instance")
        instance = self._instance(instance_id, _cut(labels))
        instance.push(
            subscription_id,
            compression_type,
            size,
            self.max_push_bytes,
            terminating=terminating,
            now_ms=now_ms,
        )
        return instance

    def _instance(self, instance_id: UUID, labels: ClientLabels) -> ClientInstance:
        """The instance, which is used now; a new one if this broker does not know it, or has forgotten it."""
        instance = self._instances.get(instance_id)
        if instance is None:
            instance = self._instances[instance_id] = ClientInstance(labels, self._subscription_of(labels))
            if len(self._instances) > _INSTANCES_MAX:
                self._instances.popitem(last=False)
        self._instances.move_to_end(instance_id)
        return instance

    def _subscription_of(self, labels: ClientLabels) -> TelemetrySubscription:
        metrics: set[str] = set()
        intervals = []
        for name in sorted(self._configs):
            config = self._configs[name]
            if _matches(config.get("match", ""), labels):
                metrics.update(part.strip() for part in config.get("metrics", "").split(",") if part.strip())
                intervals.append(int(config.get("interval.ms", DEFAULT_INTERVAL_MS)))
        # On the wire "every metric" is one empty prefix.
        chosen = ("",) if _ALL in metrics else tuple(sorted(metrics))
        interval_ms = min(intervals, default=DEFAULT_INTERVAL_MS)
        fingerprint = crc32(repr((chosen, interval_ms)).encode())
        return TelemetrySubscription(fingerprint & 0x7FFFFFFF, interval_ms, chosen)


def _cut(labels: ClientLabels) -> ClientLabels:
    return ClientLabels._make(label[:LABEL_CHARS_MAX] for label in labels)


def _matches(match: str, labels: ClientLabels) -> bool:
    values = labels._asdict()
    for rule in filter(None, (part.strip() for part in match.split(","))):
        label, _, pattern = rule.partition("=")
        try:
            expression = compile_regex(pattern.strip(), "The pattern of a client-metrics subscription")
        except KafkaError:  # written by a broker with another regex syntax: it matches no client
            return False
        if not expression.fullmatch(values.get(label.strip(), "")):
            return False
    return True
